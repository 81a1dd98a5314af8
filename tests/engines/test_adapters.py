"""LoRA adapters on the real engines, behind both routers: each scores as its merged checkpoint does in transformers.

The adapters' own pair of matrices, ranks, scales and heads are in `support/tiny_adapters.py`.
"""

import random
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import tiny_adapters
from support.fleet import server_python
from support.launch_target import KEY
from support.parity import run, transformers_scores
from support.processes import http
from support.replicas import Replicas, engine_python, replicas, spec_of, start_router
from support.tiny_models import STEP

from rewardpool import Pool, RewardConfig, Sample
from rewardpool_api import names
from rewardpool_api.pool import RouterFlavor

pytestmark = pytest.mark.real
CLOSE = 1e-5
NAMES = tuple(tiny_adapters.ADAPTERS)
TEXTS = ["ok", "two words", f"Größe → 日本{STEP}", "long " * 90, " x", "a\nb"]


@dataclass(frozen=True)
class Served:
    """One replica with all adapters, the routers in front of it, and what transformers says."""

    pool: Replicas
    routers: dict[RouterFlavor, str]
    expected: dict[str, list[float]]
    """By adapter; the base's as ""."""

    def ask(self, url: str, given: Any, adapter: str = "") -> Any:
        """Score as the client does."""
        request = {"model": "rm", "input": given} | ({"user": f"adapter:{adapter}"} if adapter else {})
        status, _, answer = http("POST", url + "/v1/embeddings", request, key=KEY, seconds=120)
        assert status == 200, answer
        return answer


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    engine_python(request.param)
    folder = tmp_path_factory.mktemp("adapters")
    base, adapters = folder / "base", folder / "adapters"
    run("make", "Qwen2", str(base))
    command = [server_python(), tiny_adapters.__file__, str(base), str(adapters)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    models = {"": base, **{name: adapters / f"{name}-merged" for name in NAMES}}
    expected = {
        name: [score for (score,) in transformers_scores("Qwen2", model, list(TEXTS), folder)]
        for name, model in models.items()
    }
    spec = spec_of(request.param, base)
    given = [{"name": name, "source": f"file://{adapters / name}"} for name in NAMES]
    model = type(spec.model).model_validate({**spec.model.model_dump(by_alias=True), "adapters": given})
    with ExitStack() as stack:
        pool = stack.enter_context(replicas(spec.model_copy(update={"model": model}), folder, count=1))
        smg = start_router(pool.urls, folder / "smg", stack, flavor="smg")
        yield Served(pool, {"sglang-router": pool.router, "smg": smg}, expected)


@pytest.mark.parametrize("flavor", ["sglang-router", "smg"])
@pytest.mark.parametrize("name", ["", *NAMES], ids=["base", *NAMES])
def test_each_adapter_scores_as_its_merged_checkpoint(served: Served, name: str, flavor: RouterFlavor) -> None:
    answer = served.ask(served.routers[flavor], TEXTS, name)
    assert answer["model"] == (name or "rm")
    assert [item["embedding"][0] for item in answer["data"]] == pytest.approx(served.expected[name], abs=CLOSE)
    single = [served.ask(served.routers[flavor], text, name)["data"][0]["embedding"][0] for text in TEXTS]
    assert single == pytest.approx(served.expected[name], abs=CLOSE)


def test_adapters_that_are_computed_together_do_not_mix(served: Served) -> None:
    asked = 8 * [
        (name, text, score)
        for name, scores in served.expected.items()
        for text, score in zip(TEXTS, scores, strict=True)
    ]
    random.Random(3).shuffle(asked)
    router = served.routers["sglang-router"]
    with ThreadPoolExecutor(24) as threads:
        answers = list(threads.map(lambda one: served.ask(router, one[1], one[0]), asked))
    found = [answer["data"][0]["embedding"][0] for answer in answers]
    assert found == pytest.approx([score for _, _, score in asked], abs=CLOSE)


def test_the_adapters_differ_from_their_base_and_from_each_other(served: Served) -> None:
    scores = list(served.expected.values())
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert all(abs(x - y) > 100 * CLOSE for x, y in zip(scores[first], scores[second], strict=True))


@pytest.mark.parametrize("flavor", ["sglang-router", "smg"])
async def test_a_trainer_chooses_an_adapter_by_its_config(served: Served, flavor: RouterFlavor, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    config = RewardConfig(
        url=served.routers[flavor], key_file=tmp_path / "key", served_name="rm", adapter="own-head", announce=False
    )
    async with Pool(config) as pool:
        scores = [await pool.score(Sample(text=text)) for text in TEXTS]
    assert scores == pytest.approx(served.expected["own-head"], abs=CLOSE)


@pytest.mark.parametrize("flavor", ["sglang-router", "smg"])
def test_an_unknown_adapter_is_a_wrong_model_with_the_names_there_are(served: Served, flavor: RouterFlavor) -> None:
    error = served.ask(served.routers[flavor], "ok", "own-haed")["error"]
    assert error["code"] == "wrong_model"
    assert "'own-haed'" in error["message"]
    assert all(name in error["message"] for name in NAMES)


def test_readiness_names_the_adapters_that_scored(served: Served) -> None:
    status, _, said = http("GET", served.pool.urls[0] + names.READY_PATH)
    assert (status, said["adapters"]) == (200, sorted(NAMES))

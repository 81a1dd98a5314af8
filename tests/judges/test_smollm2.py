"""500 judgements by a real, small model on each real engine, behind both real routers: `make test-judges`.

That target makes the model and runs this; it takes minutes. What was found is kept in .rewardpool/judges/smollm2.json.

JUDGEMENTS    of the model that thinks; 500 by default
"""

import asyncio
import json
import math
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.fleet import FLAVORS, ROOT, Fleet, server_python
from support.launch_target import KEY
from support.parity import JUDGES
from support.replicas import ON_CPU, SERVED_NAME, Replicas, engine_python, replicas

from rewardpool._client.pool import Pool
from rewardpool._config import RewardConfig
from rewardpool._rewards import Episode, Rating, open_reward
from rewardpool._rewards.judges.judge_prompt import JudgePrompt
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool_api import RewardPoolSpec, load_manifest
from rewardpool_api.pool import RouterFlavor

pytestmark = pytest.mark.real

MODEL = load_manifest(ROOT / "examples" / "smollm2" / "judge.yaml").spec.model.source
OUT = ROOT / ".rewardpool" / "judges" / "smollm2.json"
NEXT_TOKENS = Path(__file__).parents[1] / "support" / "next_tokens.py"
THINKING_MODEL = Path(__file__).parents[1] / "support" / "thinking_model.py"
JUDGEMENTS = int(os.environ.get("JUDGEMENTS") or 500)
FOR_JUDGES = {
    "vllm": [
        *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
        # On a CPU it ends of a prompt with a seed that it computes in parts.
        "--no-enable-chunked-prefill",
    ],
    "sglang": ["--constrained-json-disable-any-whitespace"],
}
"""Flags, as docs/judges.md says."""
PARSERS = {"vllm": "deepseek_r1", "sglang": "deepseek-r1"}
"""Reasoning parsers: thoughts up to `</think>`, which the template opens."""
PROMPT = "{answer_format}\n\nQuestion: {question}\nAnswer: {response}"
"""What all have in common comes first, so that an engine computes it once."""
RUBRIC = [{"name": "right", "says": "It is right."}, {"name": "short", "says": "It is short."}]
FORMS: list[tuple[dict[str, Any], int, int]] = [
    ({"prompt": PROMPT, "reasoning_characters": 20}, 160, 160),
    ({"prompt": PROMPT, "output": "choice"}, 100, 100),
    ({"prompt": PROMPT, "output": "choice", "labels": {"yes": 1, "no": 0}}, 100, 100),
    ({"prompt": "{rubric}\n" + PROMPT, "rubric": RUBRIC, "reasoning_characters": 20}, 60, 60),
    ({"prompt": PROMPT, "reasoning_characters": 0}, 30, 30),
    ({"mode": "pairwise", "output": "choice", "opponents": 2}, 20, 40),
    ({"mode": "listwise", "together": 4, "reasoning_characters": 20}, 40, 10),
]
"""Configs; how many responses are judged with each, and how many judgements that takes."""
THOUGHTFUL_FORMS: list[dict[str, Any]] = [
    {"reasoning_characters": 20},
    {"output": "choice", "labels": {"yes": 1, "no": 0}},
    {"reasoning_characters": 0, "labels": {"right": 1, "wrong": 0}},
]
"""Configs that share the judgements of the model that thinks."""
PER_GROUP = 4
YES, NO = "Yes", "No"
"""As SmolLM2 begins most answers; `yes` is another token."""
CLOSE = 1e-3


@dataclass(frozen=True)
class Judge:
    """SmolLM2 on an engine."""

    engine: str
    replicas: Replicas


@pytest.fixture(scope="module", params=JUDGES)
def judge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    engine_python(request.param)
    spec = spec_of(request.param, {"type": "Generative"}, FOR_JUDGES[request.param])
    with replicas(spec, tmp_path_factory.mktemp("judge"), count=1) as started:
        yield Judge(request.param, started)


@pytest.fixture(scope="module", params=JUDGES)
def thinking_judge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A SmolLM2 that thinks first, on an engine with a reasoning parser."""
    engine_python(request.param)
    args = [*FOR_JUDGES[request.param], "--reasoning-parser", PARSERS[request.param]]
    spec = spec_of(request.param, {"type": "Generative"}, args)
    folder = tmp_path_factory.mktemp("thinking")
    command = [server_python(), str(THINKING_MODEL), MODEL.removeprefix("file://"), str(folder / "model")]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    model = spec.model.model_copy(update={"source": f"file://{folder / 'model'}"})
    with replicas(spec.model_copy(update={"model": model}), folder, count=1) as started:
        yield Judge(request.param, started)


def spec_of(engine: str, model: dict[str, Any], args: list[str]) -> RewardPoolSpec:
    """SmolLM2 in fp32."""
    if not Path(MODEL.removeprefix("file://"), "tokenizer.json").exists():
        pytest.skip("there is no SmolLM2: `make test-judges` makes it")
    settings = {"name": engine, "dtype": "float32", "maxModelLen": 1024, **ON_CPU[engine]}
    settings["args"] = [*settings["args"], *args]
    return RewardPoolSpec.model_validate({"model": {"source": MODEL, **model}, "engine": settings})


def episodes(count: int, *, group: int = 0) -> list[Episode]:
    """Answers to sums, half of them wrong and some of them odd."""
    odd = ["", "\u00e9\U0001f642" * 5, '{"score": 10}', "<|im_end|>", "I do not know. " * 10]
    made = []
    for number in range(count):
        response = odd[number % len(odd)] if number % 7 == 6 else f"It is {number + 2 + number % 2}."
        name = f"group {group}, response {number}"
        made.append(Episode(prompt=f"What is {number} + 2?", response=response, group=group, id=name))
    return made


async def rated(url: str, key_file: Path, config: dict[str, Any], count: int) -> list[Rating]:
    """So many responses, judged without a second try."""
    settings = {"retries": 0, "temperature": 0.7, "max_tokens": 200, "seed": 7, **config}
    spec = {"url": url, "key_file": str(key_file), "served_name": SERVED_NAME, "type": "Generative"}
    rest = {
        "judge": settings,
        "timeout": 900,
        "concurrency": 128,
        "on_failure": "skip",
    }
    async with open_reward({**spec, **rest}) as reward:
        if not reward.needs_group:
            return list(await asyncio.gather(*map(reward.rate, episodes(count))))
        groups = [episodes(PER_GROUP, group=group) for group in range(count // PER_GROUP)]
        return [rating for some in await asyncio.gather(*map(reward.rate_group, groups)) for rating in some]


def fleet_of(judge: Judge, folder: Path, flavor: RouterFlavor) -> Fleet:
    """A router of either kind before the judge."""
    served = {"others": judge.replicas.urls, "key": KEY, "served_name": SERVED_NAME}
    return Fleet(folder, workers=0, flavor=flavor, request_seconds=600, **served)


def keep(engine: str, **found: Any) -> None:
    """Write down what was found."""
    OUT.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(OUT.read_text()) if OUT.exists() else {}
    kept[engine] = {**kept.get(engine, {}), **found}
    OUT.write_text(json.dumps(kept, indent=2))


async def test_none_of_500_judgements_is_unparsable(judge: Judge, tmp_path: Path) -> None:
    assert sum(judgements for _, _, judgements in FORMS) == 500
    ratings: list[Rating] = []
    began = time.monotonic()
    for number, (config, count, _) in enumerate(FORMS):
        folder = tmp_path / str(number)
        folder.mkdir()
        flavor = FLAVORS[number % len(FLAVORS)]
        async with fleet_of(judge, folder, flavor) as fleet:
            ratings += await rated(fleet.router.url, fleet.key_file, config, count)
    errors = [str(rating.error) for rating in ratings if rating.error is not None]
    keep(judge.engine, judgements=500, unparsable=len(errors), seconds=round(time.monotonic() - began, 1))
    assert errors == []
    assert all(rating.total is not None and math.isfinite(rating.total) for rating in ratings)


async def test_a_judge_that_thinks_first_is_read_within_the_bound(thinking_judge: Judge, tmp_path: Path) -> None:
    ratings: list[Rating] = []
    began = time.monotonic()
    for number, config in enumerate(THOUGHTFUL_FORMS):
        count = JUDGEMENTS * (number + 1) // len(THOUGHTFUL_FORMS) - JUDGEMENTS * number // len(THOUGHTFUL_FORMS)
        folder = tmp_path / str(number)
        folder.mkdir()
        async with fleet_of(thinking_judge, folder, FLAVORS[number % len(FLAVORS)]) as fleet:
            settings = {"prompt": PROMPT, "retries": 2, **config}
            ratings += await rated(fleet.router.url, fleet.key_file, settings, count)
    errors = [str(rating.error) for rating in ratings if rating.error is not None]
    said = [next(iter(rating.info.values())) for rating in ratings if rating.error is None]
    asked = [each["requests"] for each in said]
    found = {"judgements": len(ratings), "unreadable": len(errors), "most_generations": max(asked, default=0)}
    asked_again = sum(requests > 1 for requests in asked)
    keep(
        thinking_judge.engine,
        thinking={**found, "asked_again": asked_again, "seconds": round(time.monotonic() - began, 1)},
    )
    assert errors == []
    assert max(asked) <= 3
    # Its reasons in JSON have closing tags in them, too, as it writes those in place of full stops.
    assert all(words[:1] in ("{", '"') for each in said for words in each["words"])


async def test_the_engine_separates_the_thoughts(thinking_judge: Judge, tmp_path: Path) -> None:
    async with fleet_of(thinking_judge, tmp_path, "sglang-router") as fleet:
        settings = {"url": fleet.router.url, "key_file": str(fleet.key_file), "served_name": SERVED_NAME}
        async with Pool(RewardConfig.model_validate({**settings, "timeout": 300})) as pool:
            said = await pool.judge([{"role": "user", "content": "What is 2 + 2?"}], max_tokens=100, seed=1)
            cut = await pool.judge([{"role": "user", "content": "What is 2 + 2?"}], max_tokens=1, seed=1)
    assert said.has_reasoning
    assert (cut, cut.is_cut_off) == ("", True)


def questions() -> list[list[dict[str, Any]]]:
    """Such that SmolLM2 may begin with yes or no."""
    config = JudgeConfig(
        output="probabilities",
        labels={YES: 1, NO: 0},
        prompt="Question: {question}\nAnswer: {response}\nIs the answer right? {answer_format}",
    )
    prompt, how = JudgePrompt(config), config.answer_format().instruction
    return [list(prompt.messages(one, {"response": one.response}, how=how)) for one in episodes(12) if one.response]


@pytest.fixture(scope="module")
def by_transformers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What transformers computes for the questions."""
    folder = tmp_path_factory.mktemp("transformers")
    asked, answered = folder / "questions.json", folder / "answers.json"
    asked.write_text(json.dumps(questions()))
    arguments = [str(NEXT_TOKENS), MODEL.removeprefix("file://"), str(asked), str(answered)]
    subprocess.run([server_python(), *arguments], check=True, capture_output=True, timeout=600)
    found: list[dict[str, Any]] = json.loads(answered.read_text())
    return found


def share_of_yes(tokens: dict[str, float]) -> float:
    """Of the probability of yes and no together."""
    yes, no = math.exp(tokens[YES]), math.exp(tokens[NO])
    return yes / (yes + no)


async def decoded(judge: Judge, folder: Path, flavor: RouterFlavor) -> list[dict[str, float]]:
    """The engine's own probabilities of the first token, by the router."""
    sampling = JudgeConfig(output="probabilities", labels={YES: 1, NO: 0}).answer_format().request
    async with fleet_of(judge, folder, flavor) as fleet:
        settings = {"url": fleet.router.url, "key_file": str(fleet.key_file), "served_name": SERVED_NAME}
        async with Pool(RewardConfig.model_validate({**settings, "timeout": 300})) as pool:
            return [dict(await pool.first_token(messages, **sampling)) for messages in questions()]


async def test_probabilities_pass_the_routers_and_are_those_of_transformers(
    judge: Judge, by_transformers: list[dict[str, Any]], tmp_path: Path
) -> None:
    largest = 0.0
    for flavor in FLAVORS:
        (tmp_path / flavor).mkdir()
        for said, expected in zip(await decoded(judge, tmp_path / flavor, flavor), by_transformers, strict=True):
            differences = [abs(math.exp(said[token]) - math.exp(expected["next"][token])) for token in (YES, NO)]
            largest = max(largest, *differences)
    keep(judge.engine, probability_diff=largest)
    assert largest <= CLOSE


async def test_yes_and_no_without_decoding_equal_the_decoded_probabilities(
    judge: Judge, by_transformers: list[dict[str, Any]], tmp_path: Path
) -> None:
    shares = [share_of_yes(tokens) for tokens in await decoded(judge, tmp_path, "sglang-router")]
    spec = spec_of(judge.engine, {"head": {"type": "LMHead", "yesToken": YES, "noToken": NO}}, [])
    with replicas(spec, tmp_path / "head", count=1) as head:
        scores = head.scores([each["ids"] for each in by_transformers])
    differences = [abs(1 / (1 + math.exp(-score)) - share) for (score,), share in zip(scores, shares, strict=True)]
    keep(judge.engine, yes_no_diff=max(differences))
    assert max(differences) <= CLOSE
    assert max(shares) - min(shares) > 0.05

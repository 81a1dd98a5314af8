"""Functions and rules in the training job."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._rewards import Episode, Rating, open_reward
from rewardpool._rewards.functions import LengthPenaltyScorer, length_penalty
from rewardpool._rewards.part_config import LengthPenalty
from rewardpool.errors import ConfigError, FunctionFailedError, InvalidSampleError


def exact(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any, bonus: float = 0.0) -> float:
    return float(solution_str == ground_truth) + bonus


async def detailed(**given: Any) -> dict[str, Any]:
    return {"score": 0.5, "acc": True, "given": sorted(given), "level": given["extra_info"]["level"]}


def failing(**_: Any) -> float:
    raise KeyError("no such answer")


def nothing(**_: Any) -> None:
    return None


async def hanging(**_: Any) -> float:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def pid(**_: Any) -> dict[str, float]:
    return {"score": 1.0, "pid": os.getpid()}


def token(**_: Any) -> bool:
    return os.environ.get("HF_TOKEN") == "secret"


def printing(**_: Any) -> float:
    print("hello")
    return 1.0


async def rate(function: Any, **fields: Any) -> Rating:
    episode = Episode(prompt="?", response="4", ground_truth="4", data_source="gsm8k", extra_info={"level": 3}, id="e1")
    async with open_reward({"function": function, "name": "rule", **fields}) as reward:
        return await reward.rate(episode)


async def test_a_function_is_called_as_verl_calls_it() -> None:
    rating = await rate(exact)
    assert (rating.total, rating.components) == (1.0, {"rule": 1.0})


async def test_further_arguments_are_those_of_the_config_and_win() -> None:
    assert (await rate(exact, kwargs={"bonus": 0.5, "ground_truth": "5"})).total == 0.5


async def test_what_a_function_says_beside_its_score_is_kept() -> None:
    rating = await rate(detailed)
    assert rating.total == 0.5
    arguments = ["data_source", "extra_info", "ground_truth", "solution_str"]
    assert rating.info == {"rule": {"acc": True, "given": arguments, "level": 3}}


@pytest.mark.parametrize("run_in", ["processes", "threads"])
@pytest.mark.parametrize(
    ("function", "said"),
    [(failing, "KeyError: 'no such answer'"), (nothing, "returned None, not a number"), (hanging, "longer than 0.4 s")],
)
async def test_a_function_without_a_number_is_an_error_and_never_a_zero(function: Any, said: str, run_in: str) -> None:
    limits = {"cpu_seconds": 0.2, "idle_seconds": 0.2} if function is hanging else {}
    with pytest.raises(FunctionFailedError, match=f"sample e1: .*{said}"):
        await rate(function, run_in=run_in, **limits)
    skipped = await rate(function, run_in=run_in, **limits, on_failure="skip")
    assert (skipped.total, skipped.components) == (None, {"rule": None})


@pytest.mark.parametrize(("run_in", "is_here"), [("processes", False), ("threads", True)])
async def test_a_function_runs_in_processes_of_its_own_unless_it_is_to_run_here(run_in: str, is_here: bool) -> None:
    assert ((await rate(pid, run_in=run_in)).info["rule"]["pid"] == os.getpid()) is is_here


async def test_in_threads_a_function_shares_objects_with_the_job() -> None:
    seen: list[str] = []
    lock = threading.Lock()

    def noting(solution_str: str, **_: Any) -> float:
        with lock:
            seen.append(solution_str)
        return 1.0

    with pytest.raises(ConfigError, match="run_in: threads, where functions share objects"):
        await rate(noting)
    await rate(noting, run_in="threads")
    assert seen == ["4"]


async def test_a_functions_variables_are_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert (await rate(token)).total == 0.0
    assert (await rate(token, env=["HF_TOKEN"])).total == 1.0


async def test_what_a_function_prints_names_its_sample(capsys: pytest.CaptureFixture[str]) -> None:
    await rate(printing)
    assert "e1: hello\n" in capsys.readouterr().err


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    ended = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.stdout == "[1.0, 0.0]\n", ended.stderr


SCRIPT = """
import rewardpool

answers = {"4"}

def compute_score(data_source, solution_str, ground_truth, extra_info):
    return solution_str in answers

with rewardpool.Reward(compute_score) as reward:
    print(reward(["?", "?"], ["4", "5"]))
"""


@pytest.mark.parametrize("run_in", ["threads", "processes"])
async def test_a_function_that_is_not_there_is_a_mistake_in_the_config(run_in: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await rate("support.reward_functions:nowhere", run_in=run_in, concurrency=1)
    assert caught.value.field == "reward.function"


async def test_a_thread_that_hangs_in_a_function_is_told_of_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Event()

    def stuck(**_: Any) -> float:
        return float(released.wait(60))

    with pytest.raises(FunctionFailedError, match="longer than"):
        await rate(stuck, run_in="threads", cpu_seconds=0.01, idle_seconds=0.01)
    released.set()
    assert "has 1 threads that hang" in caplog.text


LIMITS = LengthPenalty(max_tokens=100, buffer_tokens=20, penalty=0.5)


@pytest.mark.parametrize(("tokens", "penalty"), [(0, 0), (80, 0), (81, -0.025), (90, -0.25), (100, -0.5), (5000, -0.5)])
def test_the_penalty_grows_through_the_buffer(tokens: int, penalty: float) -> None:
    assert length_penalty(tokens, LIMITS) == pytest.approx(penalty)


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_longer_response_is_never_punished_less(one: int, other: int) -> None:
    shorter, longer = sorted((one, other))
    assert -0.5 <= length_penalty(longer, LIMITS) <= length_penalty(shorter, LIMITS) <= 0


@pytest.mark.parametrize("known", [{"response_tokens": 90}, {"response_ids": range(90)}])
async def test_the_length_is_that_of_the_policys_tokens(known: dict[str, Any]) -> None:
    score = await LengthPenaltyScorer(LIMITS).score(Episode(prompt="?", response="!", **known))
    assert score.value == -0.25


async def test_a_response_of_unknown_length_is_not_taken_for_a_short_one() -> None:
    with pytest.raises(InvalidSampleError, match="response_tokens"):
        await LengthPenaltyScorer(LIMITS).score(Episode(prompt="?", response="!"))

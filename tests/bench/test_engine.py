"""`make bench-engine`: what it reads from a log, what it compares, and what it aims at."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from engine import functions, rewards
from engine.aims import aims
from engine.engines import STEP, TEXT_CHARACTERS, texts
from engine.plain_app import ENV_FUNCTION, app
from engine.starts import FIRST_SCORE, MARKS, POLL_SECONDS, phases, watched
from engine.turns import CLOSE, Scores, cpu_ratio

MARKED = (("imports", "hello"), ("weights loaded", "loaded"), ("engine ready", "ready"))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (
            {"imports": 5.0, "weights loaded": 7.5, "engine ready": 8.0},
            {"imports": 5.0, "weights loaded": 2.5, "engine ready": 0.5, FIRST_SCORE: 2.0},
        ),
        ({"imports": 5.0, "engine ready": 8.0}, {"imports": 5.0, "engine ready": 3.0, FIRST_SCORE: 2.0}),
        ({}, {FIRST_SCORE: 10.0}),
    ],
    ids=["every mark", "a mark that did not come", "no mark"],
)
def test_the_phases_of_a_start_add_up_to_its_first_score(seen: dict[str, float], expected: dict[str, float]) -> None:
    assert phases(seen, MARKED, 10.0) == expected


def test_a_log_is_watched_from_before_it_is_there(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    deadline = time.monotonic() + 10
    with watched(log, MARKED) as seen:
        log.write_text("hello\n")
        while "imports" not in seen and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    assert list(seen) == ["imports"]


def test_every_engine_has_marks_of_its_own_names() -> None:
    for marks in MARKS.values():
        assert len({phase for phase, _ in marks}) == len(marks)


def test_another_score_of_a_text_ends_the_run() -> None:
    scores = Scores()
    scores.check("a", 0.5)
    scores.check("a", 0.5 + CLOSE / 2)
    assert scores.largest_difference == pytest.approx(CLOSE / 2)
    with pytest.raises(RuntimeError, match=r"scored 0\.5 at first is scored 0\.6 now"):
        scores.check("a", 0.6)


def test_texts_that_score_alike_end_the_run_since_a_swapped_one_would_not_be_seen() -> None:
    scores = Scores()
    for text in "abcde":
        scores.check(text, 0.5)
    with pytest.raises(RuntimeError, match="5 texts have only 1 scores"):
        scores.check_distinct()


@pytest.mark.parametrize("steps", [False, True], ids=["one label", "token level"])
def test_texts_differ_and_fit_the_model(steps: bool) -> None:
    given = texts(50, steps=steps)
    assert len(set(given)) == 50
    assert max(map(len, given)) < 1024 - len(STEP)
    assert min(map(len, given)) >= TEXT_CHARACTERS[0]
    assert {STEP in text for text in given} == {steps}


def test_both_functions_and_the_plain_app_give_a_sample_its_own_score(monkeypatch: pytest.MonkeyPatch) -> None:
    text = functions.texts(8)[7]
    assert rewards.compute_score(**json.loads(text)) == -6.5
    for name in functions.FUNCTIONS:
        monkeypatch.setenv(ENV_FUNCTION, name)
        assert asyncio.run(asked(text)) == [{"index": 0, "embedding": [-6.5]}]


async def asked(text: str) -> Any:
    sent: list[dict[str, Any]] = []
    body = json.dumps({"model": "function", "input": text}).encode()
    parts = iter([{"body": body[:9], "more_body": True}, {"body": body[9:]}])

    async def receive() -> dict[str, Any]:
        return next(parts)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST"}, receive, send)
    return json.loads(sent[1]["body"])["data"]


def setting(ratio: str, median: float) -> dict[str, Any]:
    return {"model": "one label", "replicas": 2, "ratios": {ratio: {"median": median}}}


@pytest.mark.parametrize(
    ("result", "met"),
    [
        ({"vllm": [setting("client/direct", 0.95)]}, [True]),
        ({"vllm": [setting("client/direct", 0.94)], "sglang": [setting("client/direct", 1.0)]}, [False, True]),
        ({"vllm": [setting("session/direct", 0.1)]}, []),
        ({"functions": [{"function": "f", "ratios": {"engine/uvicorn": {"median": 0.89}}}]}, [False]),
        ({}, []),
    ],
)
def test_an_aim_is_met_by_the_median(result: dict[str, Any], met: list[bool]) -> None:
    assert [aim["met"] for aim in aims(result)] == met


def test_a_way_that_takes_twice_the_cpu_time_has_half_the_ratio() -> None:
    one = [{"client": 2.0, "router": 2.0, "workers": 4.0}, {"client": 1.0, "router": 1.0, "workers": 8.0}]
    other = [{"client": 1.0, "router": 0.0, "workers": 3.0}, {"client": 1.0, "router": 0.0, "workers": 8.0}]
    assert cpu_ratio(one, other) == {"median": 0.7, "min": 0.5, "max": 0.9}

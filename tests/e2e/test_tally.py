"""How the traffic of the fault tests is counted: no sample can go missing without being a failed one."""

import asyncio
import json
from pathlib import Path

from faults.reward import compute_score, expected_score
from faults.tally import Answer, TrafficLog, count, due
from faults.traffic import BEGAN, SAMPLES, question, wrong


def answer(index: int, *, seconds: float = 0.1, attempts: int = 1, problem: str | None = None) -> Answer:
    return Answer(index=index, seconds=seconds, attempts=attempts, problem=problem)


def test_right_answers_are_only_counted() -> None:
    tally = count(range(2), {0: answer(0), 1: answer(1, seconds=3.5, attempts=2), 7: answer(7, problem="failed")})
    assert (tally.samples, tally.failed, tally.wrong, tally.retried) == (2, 0, 0, 1)
    assert tally.slowest_seconds == 3.5


def test_a_sample_without_an_answer_failed() -> None:
    tally = count(range(3), {0: answer(0), 2: answer(2)})
    assert (tally.samples, tally.failed) == (3, 1)
    assert tally.problems == ("failed: sample 1 has no answer",)


def test_wrong_and_failed_are_told_apart() -> None:
    answers = {0: answer(0, problem="wrong: 1.0 instead of 0.5"), 1: answer(1, problem="failed: DeadlineError")}
    tally = count(range(2), answers)
    assert (tally.failed, tally.wrong) == (1, 1)


def test_a_windows_samples_are_those_due_in_it() -> None:
    assert due(101.0, 102.0, began=100.0, rate=4.0) == range(4, 8)
    assert due(99.0, 100.5, began=100.0, rate=4.0) == range(2)


def test_two_neighbouring_windows_share_no_sample_and_skip_none() -> None:
    first, second = due(10.0, 11.3, began=9.7, rate=7.0), due(11.3, 12.0, began=9.7, rate=7.0)
    assert [*first, *second] == list(due(10.0, 12.0, began=9.7, rate=7.0))


def test_a_line_that_is_being_written_is_read_later(tmp_path: Path) -> None:
    (tmp_path / BEGAN).write_text(json.dumps({"began": 0.0, "rate": 1.0}))
    whole = json.dumps({"index": 0, "seconds": 0.1, "attempts": 1, "problem": None}) + "\n"
    log = TrafficLog(tmp_path)
    for written, read in ((whole, {0}), (whole + whole[:9], {0}), (whole + whole.replace("0,", "1,", 1), {0, 1})):
        (tmp_path / SAMPLES).write_text(written)
        assert set(log.answers()) == read


def test_the_model_gives_the_score_that_the_traffic_expects() -> None:
    score = asyncio.run(compute_score("", "four", None, {}))
    assert wrong(question("four"), score) is None


def test_another_texts_score_is_wrong() -> None:
    said = wrong(question("four"), expected_score("five"))
    assert said == f"wrong: {expected_score('five')} instead of {expected_score('four')}"

"""What became of the samples that were due in a window of time: counts from the lines that `traffic` wrote."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from faults.traffic import BEGAN, SAMPLES

SHOWN_PROBLEMS = 5


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One line of the traffic's: see `faults.traffic`."""

    index: int
    seconds: float
    attempts: int
    problem: str | None
    score: float | None = None


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Counts of one window."""

    samples: int
    failed: int
    """Without a score, those without any answer included."""
    wrong: int
    retried: int
    """With more than one request."""
    slowest_seconds: float
    problems: tuple[str, ...] = ()
    """The first few, in words."""


class TrafficLog:
    """The folder that a traffic pod writes to; lines are read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[int, Answer] = {}
        self._read_bytes = 0

    @property
    def flows(self) -> bool:
        """Whether a sample was answered yet."""
        return (self._folder / BEGAN).exists() and bool(self.answers())

    def answers(self) -> dict[int, Answer]:
        """All answers so far, by the sample's index."""
        with (self._folder / SAMPLES).open("rb") as file:
            file.seek(self._read_bytes)
            news = file.read()
        whole = news[: news.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            answer = Answer(**json.loads(line))
            self._answers[answer.index] = answer
        return self._answers

    def due(self, since: float, until: float) -> range:
        """Indices of the samples that were due in that window, in seconds since 1970."""
        start = json.loads((self._folder / BEGAN).read_text())
        return due(since, until, began=start["began"], rate=start["rate"])


def due(since: float, until: float, *, began: float, rate: float) -> range:
    """Which samples of a load that `began` then were due from `since` until before `until`."""
    return range(max(0, math.ceil((since - began) * rate)), max(0, math.ceil((until - began) * rate)))


def count(indices: Iterable[int], answers: dict[int, Answer]) -> Tally:
    """Count what became of the samples; one without an answer failed."""
    wanted = list(indices)
    given = [answers[index] for index in wanted if index in answers]
    lost = [f"failed: sample {index} has no answer" for index in wanted if index not in answers]
    problems = [f"{answer.problem} (sample {answer.index})" for answer in given if answer.problem] + lost
    wrong = sum(problem.startswith("wrong") for problem in problems)
    return Tally(
        samples=len(wanted),
        failed=len(problems) - wrong,
        wrong=wrong,
        retried=sum(answer.attempts > 1 for answer in given),
        slowest_seconds=max((answer.seconds for answer in given), default=0.0),
        problems=tuple(problems[:SHOWN_PROBLEMS]),
    )

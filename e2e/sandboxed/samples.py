"""What the jobs ask, and what becomes of it: pure functions of the tests' hostile code and of the jobs' lines."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from support.hostile_code import (
    ENDS,
    FALSE_ASSERTION,
    FILES,
    FORGERIES,
    IMPOSTORS,
    NETWORK,
    PROCESSES,
    REFUSALS,
    RESULTS,
    SHADOWS,
    WRITES,
    reaching,
)

SECRET: Final = "/tmp/secret"
"""A file of the function's own, in its pod."""
Kind = Literal["reach", "end", "forge", "control", "neighbour"]
SHOWN_PROBLEMS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A sample, and what is to become of it."""

    name: str
    kind: Kind
    code: str
    extra_info: Mapping[str, Any]
    outcome: str | None = None
    """How it is to end; None for any way."""
    score: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A line of `job`'s."""

    index: int
    """Of the sample in the file."""
    began: float
    """When it was asked, in seconds since 1970."""
    seconds: float
    attempts: int
    score: float | None
    info: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None
    problem: str | None = None
    """Why there is no score."""


@dataclass
class Tally:
    """Counts of what became of samples; the problems in words."""

    samples: int = 0
    escaped: int = 0
    """Code that reached something."""
    forged: int = 0
    """Verdicts that are better than the code."""
    otherwise: int = 0
    """Code that ended in another way than it is to."""
    failed: int = 0
    """Samples without a score, those without any answer included, and neighbours with another one than theirs."""
    retried: int = 0
    slowest_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether all is as it should be, of at least one sample."""
        return self.samples > 0 and not (self.escaped or self.forged or self.otherwise or self.failed)

    def report(self) -> dict[str, Any]:
        """As it is written down."""
        return {**asdict(self), "slowest_seconds": round(self.slowest_seconds, 2)}


def hostile(secrets: Iterable[str]) -> list[Asked]:
    """All of the tests' hostile code; what reaches for a secret does so for each of these files."""
    reached = FILES | WRITES | PROCESSES | NETWORK
    calls: list[dict[str, Any]] = [{"function": "attempt", "expected": ""}]
    made = [
        Asked(
            name=f"{name} ({secret})",
            kind="reach",
            code=reaching(attempt, secret=secret),
            extra_info={"calls": calls},
            outcome="raised",
        )
        for secret in secrets
        for name, attempt in reached.items()
        if "SECRET" in attempt or secret == SECRET
    ]
    calls = [{"function": "f", "expected": 1}]
    limits = {"cpu_seconds": 0.5, "idle_seconds": 0.5, "memory_mib": 64, "output_kib": 8}
    made += [
        Asked(name=name, kind="end", code=code, extra_info={"calls": calls, **limits}, outcome=outcome)
        for name, (code, outcome) in ENDS.items()
    ]
    made += [
        Asked(name=name, kind="forge", code=code, extra_info={"calls": calls, "memory_mib": 512})
        for name, code in RESULTS.items()
    ]
    asserted = [*((code, FALSE_ASSERTION) for code in FORGERIES), *((SHADOWS + code, one) for code, one in IMPOSTORS)]
    made += [
        Asked(name=f"{assertion}: {code}", kind="forge", code=code, extra_info={"asserts": [assertion]})
        for code, assertion in asserted
    ]
    return made


def control() -> list[Asked]:
    """What a function may reach and code in a sandbox may not, tried without one: there it is to be reached."""
    attempts = {name: FILES[name] for name in ("the secret", "the users", "processes", "temporary files")}
    attempts |= {name: NETWORK[name] for name in ("TCP", "UDP", "a Unix socket", "a pair")}
    return [
        Asked(
            name=name,
            kind="control",
            code=reaching(attempt, secret=SECRET),
            extra_info={"unguarded": True},
            outcome="reached",
        )
        for name, attempt in attempts.items()
    ]


def neighbours() -> list[Asked]:
    """Programs without malice: right ones, one that is right half of the time, and a wrong one."""
    doubled = [{"function": "double", "args": [number], "expected": 2 * number} for number in (2, 3)]
    asserts = ["assert double(2) == 4", "assert double(-1) == -2"]
    codes = {"x + x": 1.0, "x * x": 0.5, "None": 0.0}
    return [
        Asked(name=name, kind="neighbour", code=f"def double(x): return {name}", extra_info=tests, score=score)
        for name, score in codes.items()
        for tests in ({"calls": doubled}, {"asserts": asserts})
    ]


def to_json(asked: Sequence[Asked]) -> str:
    """The samples as `job` reads them."""
    return json.dumps([{"name": one.name, "code": one.code, "extra_info": one.extra_info} for one in asked])


def answers_in(file: Path) -> list[Answer]:
    """The whole lines that a job has written so far."""
    text = file.read_text() if file.exists() else ""
    return [Answer(**json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def count(asked: Sequence[Asked], answers: Sequence[Answer], *, lost: int = 0) -> Tally:
    """Count what became of samples; `lost` are those that were asked and have no line."""
    tally = Tally(samples=len(answers) + lost, failed=lost)
    for answer in answers:
        sample = asked[answer.index]
        tally.retried += answer.attempts > 1
        tally.slowest_seconds = max(tally.slowest_seconds, answer.seconds)
        for kind in wrongs(sample, answer):
            setattr(tally, kind, getattr(tally, kind) + 1)
            if len(tally.problems) < SHOWN_PROBLEMS:
                tally.problems.append(
                    f"{kind}: {sample.name}: {answer.problem or (answer.score, *answer.info.items())}"
                )
    return tally


def wrongs(sample: Asked, answer: Answer) -> list[str]:
    """Which of the tally's counts an answer adds to."""
    if answer.score is None:
        return ["failed"]
    if sample.kind == "neighbour":
        return [] if answer.score == sample.score else ["failed"]
    found = ["forged"] if answer.score > sample.score else []
    outcome, message = answer.info["outcome"], answer.info["message"]
    if sample.kind == "reach" and (outcome != "raised" or not message.startswith(REFUSALS)):
        found.append("escaped")
    elif sample.outcome is not None and outcome != sample.outcome:
        found.append("otherwise")
    if not answer.info.get("secret_kept", True):
        found.append("escaped")
    return found


def by_code(answers: Iterable[Answer], *, announced: float) -> dict[str, Any]:
    """Of an edited function: how many samples each of its versions scored, and how many the old one too late.

    Args:
        answers: Of samples that were asked before, while and after it was edited.
        announced: When the pool said that the change is complete, in seconds since 1970.
    """
    scored = [answer for answer in answers if answer.score is not None]
    versions = sorted({answer.info["version"] for answer in scored})
    pairs = {(answer.info["version"], answer.revision) for answer in scored}
    late = [answer for answer in scored if answer.began > announced]
    return {
        "by_version": {str(one): sum(answer.info["version"] == one for answer in scored) for one in versions},
        "revisions": len({revision for _, revision in pairs}),
        "of_two_versions": len(pairs) - len({revision for _, revision in pairs}),
        "after_the_announcement": len(late),
        "by_the_old_code_after_it": sum(answer.info["version"] != versions[-1] for answer in late),
    }

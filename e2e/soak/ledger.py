"""What became of every sample, and whether it is right: the ledger of a soak, as pure functions of what was written.

Three wrote down what they know. Whoever asks writes each sample before it is asked, and what came back. Every worker
writes which texts it scored. And the texts are scored once more, directly, by the function itself.

A training job that is killed and goes on from its checkpoint asks again for what it had not got: each of its processes
has one *life*, and a sample is lost when no life got its score.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

SHOWN_PROBLEMS = 10
TOLERANCE = 1e-6
"""Scores travel as decimal numbers."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A sample that was asked for.

    Attributes:
        life: The process that did.
        id: The sample's name, the same in each life that asks for it.
        text: SHA-256 of its text, in hexadecimal digits.
    """

    life: str
    id: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What came back for a sample.

    Attributes:
        life: The process that asked.
        id: The sample's name.
        score: None where it has none.
        attempts: Requests that it took; None where that is not known.
        given_up: Whether the process that asked did not want it any more.
    """

    life: str
    id: str
    score: float | None
    attempts: int | None = None
    given_up: bool = False


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger.

    Attributes:
        life: The process that asked.
        id: The sample's name.
        text: SHA-256 of its text.
        score: That came back; None for none.
        attempts: Requests that it took, as far as that is known.
        revisions: Of the workers that scored the text: more than one where it was scored twice.
    """

    life: str
    id: str
    text: str
    score: float | None
    attempts: int | None
    revisions: tuple[str, ...]


@dataclass(kw_only=True)
class Verdict:
    """Counts over all samples.

    Attributes:
        samples: Different ones that were asked for.
        lost: Without a score in any life, or with an error.
        wrong: Answers with another score than the text's own.
        duplicated: Answers beyond the first to one question.
        invented: Answers with a score that no worker gave, or to a question that nobody asked.
        problems: The first few of all these, in words.
    """

    samples: int = 0
    lost: int = 0
    wrong: int = 0
    duplicated: int = 0
    invented: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether all samples have their own score, once."""
        return self.lost == self.wrong == self.duplicated == self.invented == 0

    def note(self, problem: str) -> None:
        """Keep a problem in words, if there are not many yet."""
        if len(self.problems) < SHOWN_PROBLEMS:
            self.problems.append(problem)


def judge(
    asked: Sequence[Asked],
    answers: Sequence[Answered],
    *,
    scored_by: Mapping[str, Sequence[str]],
    direct: Callable[[str], float],
) -> tuple[list[Entry], Verdict]:
    """Compare what came back with what was asked.

    Args:
        asked: Every question of every life, a later life's after an earlier one's.
        answers: Everything that came back, in any order.
        scored_by: By the SHA-256 of a text, the revisions whose workers scored it.
        direct: The score that the text of that SHA-256 has.
    """
    texts = {(question.life, question.id): question.text for question in asked}
    last_life = {question.id: question.life for question in asked}
    verdict = Verdict(samples=len({question.id for question in asked}))
    entries = []
    seen: Counter[tuple[str, str]] = Counter()
    settled: set[str] = set()
    failed: set[str] = set()
    for answer in answers:
        name = f"{answer.id} of {answer.life}"
        text = texts.get((answer.life, answer.id))
        if text is None:
            verdict.invented += 1
            verdict.note(f"invented: {name} has the score {answer.score}, and nobody asked for it")
            continue
        revisions = tuple(sorted(set(scored_by.get(text, ()))))
        entries.append(
            Entry(
                life=answer.life,
                id=answer.id,
                text=text,
                score=answer.score,
                attempts=answer.attempts,
                revisions=revisions,
            )
        )
        if answer.given_up:
            if last_life[answer.id] == answer.life:
                settled.add(answer.id)
            continue
        if answer.score is None:
            failed.add(answer.id)
            continue
        settled.add(answer.id)
        seen[answer.life, answer.id] += 1
        if seen[answer.life, answer.id] > 1:
            verdict.duplicated += 1
            verdict.note(f"duplicated: {name}")
        if not math.isclose(answer.score, direct(text), rel_tol=0.0, abs_tol=TOLERANCE):
            verdict.wrong += 1
            verdict.note(f"wrong: {name} has {answer.score}, not {direct(text)}")
        if not revisions:
            verdict.invented += 1
            verdict.note(f"invented: {name} has the score {answer.score}, and no worker scored it")
    lost = ({question.id for question in asked} - settled) | failed
    verdict.lost = len(lost)
    for id_ in sorted(lost):
        verdict.note(f"lost: {id_}")
    return entries, verdict

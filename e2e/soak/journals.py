"""What traffic, training job and workers wrote down, read for the ledger."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.reward import text_hash
from faults.tally import due
from faults.traffic import BEGAN, ENDED, SAMPLES
from soak.ledger import Answered, Asked
from soak.report import Timed

TRAFFIC_LIFE = "traffic"


@dataclass(kw_only=True)
class Journal:
    """What those who ask know.

    Attributes:
        asked: Every question, those of a later life after those of an earlier one.
        answers: Everything that came back.
        timed: When the questions of it that were answered were due and answered.
        texts: By its SHA-256, every text.
        ended: Errors by which a process that asks ended by itself.
    """

    asked: list[Asked] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    timed: list[Timed] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)

    def ask(self, life: str, name: str, text: str) -> None:
        """Note a question."""
        hashed = text_hash(text)
        self.texts[hashed] = text
        self.asked.append(Asked(life=life, id=name, text=hashed))


def read_traffic(folder: Path, *, until: float) -> Journal:
    """What `faults.traffic` wrote: it says how many it asked for.

    One that was killed asked for all that was due before `until`, in seconds since 1970.
    """
    start = json.loads((folder / BEGAN).read_text())
    began, rate = start["began"], start["rate"]
    lines = list(_lines(folder / SAMPLES))
    journal = Journal()
    last = max((line["index"] for line in lines), default=-1)
    ended = folder / ENDED
    said = json.loads(ended.read_text())["asked"] if ended.exists() else None
    asked = len(due(began, until, began=began, rate=rate)) if said is None else said
    for index in range(max(last + 1, asked)):
        journal.ask(TRAFFIC_LIFE, f"sample {index}", f"sample {index}")
    for line in lines:
        name = f"sample {line['index']}"
        journal.answers.append(
            Answered(life=TRAFFIC_LIFE, id=name, score=line["score"], attempts=line["attempts"] or None)
        )
        was_due = began + line["index"] / rate
        journal.timed.append(Timed(due=was_due, answered=was_due + line["seconds"]))
    return journal


def read_lives(folder: Path) -> Journal:
    """What `soak.trainer` wrote, of all its processes."""
    journal = Journal()
    # By their beginning, which is what the name ends with.
    for path in sorted(folder.glob("*.jsonl"), key=lambda path: int(path.stem.rpartition("-")[2])):
        asked_at: dict[str, float] = {}
        for line in _lines(path):
            if "asked" in line:
                journal.ask(path.stem, line["asked"], line["text"])
                asked_at[line["asked"]] = line["at"]
            elif "answered" in line:
                name = line["answered"]
                journal.answers.append(
                    Answered(
                        life=path.stem,
                        id=name,
                        score=line["score"],
                        attempts=line["attempts"],
                        given_up=line["given_up"],
                    )
                )
                if line["score"] is not None and name in asked_at:
                    journal.timed.append(Timed(due=asked_at[name], answered=line["at"]))
            else:
                journal.ended.append(f"{path.stem} ended: {line['ended']}")
    return journal


def read_scored(folder: Path) -> dict[str, list[str]]:
    """By the SHA-256 of a text, the revisions of the workers that scored it, from the files of `faults.reward`."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        revision = revision_of(path.name)
        for text in path.read_text().split():
            found.setdefault(text, []).append(revision)
    return found


def revision_of(file: str) -> str:
    """The revision in the name of a worker's file, `POOL-worker-REVISION-REPLICASET-POD.PROCESS`."""
    return file.rpartition(".")[0].rsplit("-", 3)[1]


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    """The whole lines of a file; the last one of a process that was killed may be a part."""
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)

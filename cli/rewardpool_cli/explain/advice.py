"""Rows of `advice.yaml`: what is said in each situation, filled in from the evidence."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Literal, TypedDict

import yaml

from rewardpool_api import names
from rewardpool_api.reasons import DOWNLOAD_REASONS, ConditionReason
from rewardpool_cli.explain.evidence import Evidence

Kind = Literal["problem", "waiting", "note"]
"""A person has to act; it may pass; for information."""
KINDS: Final[tuple[Kind, ...]] = ("problem", "waiting", "note")


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One thing that is the matter with a pool, or worth knowing."""

    cause: str
    """One of CAUSES."""
    kind: Kind
    what: str
    said: str = ""
    next: tuple[str, ...] = ()


class Row(TypedDict, total=False):
    """Row as the file has it; its words are under one of KINDS."""

    cause: str
    problem: str
    waiting: str
    note: str
    next: str | list[str]
    reasons: list[str] | dict[str, str]


ROWS: Final[dict[str, Row]] = yaml.safe_load(
    (resources.files("rewardpool_cli.explain") / "advice.yaml").read_text(encoding="utf-8")
)
CAUSES: Final = tuple(dict.fromkeys(row.get("cause", name) for name, row in ROWS.items()))
"""In the order of telling."""

_CAUSE_OF_REASON: Final[dict[str, str]] = {
    **dict.fromkeys(DOWNLOAD_REASONS, "Download"),
    **{reason: row.get("cause", name) for name, row in ROWS.items() for reason in row.get("reasons", [])},
}
_MEANINGS: Final = {member.value: member.meaning for member in ConditionReason}


class _Formatted:
    """Placeholder with an argument, such as `{command:logs}`."""

    def __init__(self, written: Callable[[str], str]) -> None:
        self._written = written

    def __format__(self, argument: str) -> str:
        return self._written(argument)


def cause_of(reason: str) -> str:
    """Return what the reason of a condition or container means here."""
    return _CAUSE_OF_REASON.get(reason, "Other")


def meaning_of(reason: str) -> str:
    """Return the meaning of a reason; one that is passed on from Kubernetes is explained by its message."""
    return _MEANINGS.get(reason, "a worker or router does not start")


def explanation(evidence: Evidence, row_name: str, *, said: str = "", **values: Any) -> Explanation:
    """Return a row of the table with its placeholders filled in.

    Args:
        said: what is quoted.
        values: of the row's own placeholders.
    """
    row = ROWS[row_name]
    (kind,) = [kind for kind in KINDS if kind in row]
    reasons = row.get("reasons", [])
    steps = reasons[values["reason"]] if isinstance(reasons, dict) else row.get("next", [])
    values |= {
        "command": _Formatted(lambda words: evidence.command(*words.split(" "))),
        "patch": _Formatted(lambda setting: evidence.patch(*setting.split("="))),
        "pool": evidence.pool,
        "namespace": evidence.pool.metadata.namespace,
        "names": names,
    }
    what = row[kind].format(**values)
    return Explanation(
        cause=row.get("cause", row_name),
        kind=kind,
        what=what[0].upper() + what[1:],
        said=said,
        next=tuple(step.format(**values) for step in ([steps] if isinstance(steps, str) else steps)),
    )

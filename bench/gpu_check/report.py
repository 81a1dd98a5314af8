"""What came of the checks: rows for a table and for a file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["held", "failed", "not run"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One check's."""

    name: str
    outcome: Outcome
    seconds: float = 0.0
    figures: Mapping[str, Any] | None = None
    why: str = ""
    """Where it did not hold or was not run."""


def as_json(results: Sequence[Result], *, gpus: Sequence[str]) -> dict[str, Any]:
    """All of it, for programs."""
    return {"gpus": list(gpus), "checks": [asdict(result) for result in results]}


def as_markdown(results: Sequence[Result], *, gpus: Sequence[str]) -> str:
    """A page with a line each."""
    lines = [
        f"GPUs: {', '.join(gpus) or 'none'}",
        "",
        "| check | outcome | seconds | figures |",
        "|---|---|---:|---|",
        *(f"| {each.name} | {each.outcome} | {each.seconds:.0f} | {_figures(each)} |" for each in results),
    ]
    return "\n".join(lines) + "\n"


def held(results: Sequence[Result]) -> bool:
    """Whether something was checked, and nothing of it failed."""
    outcomes = [result.outcome for result in results]
    return "held" in outcomes and "failed" not in outcomes


def _figures(result: Result) -> str:
    if result.why:
        return " ".join(result.why.split()).replace("|", "\\|")
    return ", ".join(f"{name} {_number(value)}" for name, value in (result.figures or {}).items())


def _number(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_number, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)

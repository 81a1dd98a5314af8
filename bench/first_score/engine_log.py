"""The phases of an engine's start by the times of its log's lines, as `kubectl logs --timestamps` gives them. Pure."""

from datetime import datetime

from engine.starts import Marks, phases


def phases_of_log(log: str, marks: Marks, *, began: datetime, answered: float) -> dict[str, float]:
    """Seconds of each phase, from the container's start to the score.

    Args:
        log: lines that begin with an RFC 3339 time in UTC and a space.
        marks: of the engine.
        began: when the container was started; Kubernetes says it to the second.
        answered: when the score came, in seconds since 1970.
    """
    seen: dict[str, float] = {}
    for line in log.splitlines():
        time, _, text = line.partition(" ")
        for phase, mark in marks:
            if phase not in seen and mark in text:
                seen[phase] = _seconds(time) - began.timestamp()
    return phases(seen, marks, answered - began.timestamp())


def _seconds(time: str) -> float:
    # Nanoseconds, of which Python reads the first six digits.
    return datetime.fromisoformat(time.removesuffix("Z")[:26] + "+00:00").timestamp()

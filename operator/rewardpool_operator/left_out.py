"""Malformed objects from outside: left out, counted, logged once; the reader continues with the rest."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

from pydantic import ValidationError

from rewardpool_api import RewardPoolStatus
from rewardpool_api.times import CLOCKS_DIFFER, rfc3339, time_of
from rewardpool_operator.metrics import METRICS
from rewardpool_runtime.untrusted import NONSENSE, printable

log = logging.getLogger(__name__)

MAX_LOGGED: Final = 4096

Kind = Literal["pods", "deployments", "leases", "statuses", "routers", "objects"]

T = TypeVar("T")
R = TypeVar("R")

_logged: OrderedDict[tuple[Kind, str, str], None] = OrderedDict()


def readable(kind: Kind, items: Iterable[T], read: Callable[[T], R], *, name: Callable[[T], object]) -> list[R]:
    """Return the items that `read` does not raise any of `NONSENSE` for; others are counted, and logged once."""
    found = []
    for item in items:
        try:
            found.append(read(item))
        except NONSENSE as error:
            leave_out(kind, _name(item, name), error)
    return found


def leave_out(kind: Kind, name: str, error: BaseException) -> None:
    """Count something that makes no sense, and log it the first time."""
    METRICS.left_out(kind)
    words = printable(f"{type(error).__name__}: {error}", most=512).replace("\n", " ")
    news = (kind, name, words)
    if news in _logged:
        _logged.move_to_end(news)
        return
    _logged[news] = None
    while len(_logged) > MAX_LOGGED:
        _logged.popitem(last=False)
    log.warning("%s %s is left out, it makes no sense: %s", kind, name, words)


def with_sane_status(pool: dict[str, Any], *, now: datetime) -> dict[str, Any]:
    """The pool, as JSON, without the parts of its status that no operator can have written; see `sane_status`."""
    return {**pool, "status": sane_status(pool.get("status"), now=now)}


def sane_status(status: object, *, now: datetime) -> dict[str, Any]:
    """Return the parts of a pool's status that an operator can have written; a time that is to come becomes now."""
    if not isinstance(status, dict):
        return {}
    sane = status
    if not _is_sane(status):
        sane = {str(name): value for name, value in status.items() if _is_sane({name: value})}
        spoilt = ", ".join(sorted(printable(name, most=64) for name in status.keys() - sane.keys()))
        leave_out("statuses", spoilt or "as a whole", ValueError("a time, number or word in it is none"))
    return {name: _limited(name, value, now) for name, value in sane.items()}


def _limited(name: str, value: Any, now: datetime) -> Any:
    """A part of the status with no time that is to come, but for the one that says what is expected."""
    if isinstance(value, list):
        return [_limited(name, entry, now) for entry in value]
    if isinstance(value, dict):
        return {inner: _limited(inner, entry, now) for inner, entry in value.items()}
    if name not in _TIMES or name == _EXPECTED or value is None:
        return value
    moment = time_of(value)
    return rfc3339(now) if moment is None or moment > now + CLOCKS_DIFFER else value


_TIMES: Final = frozenset(
    {
        "lastTransitionTime",
        "time",
        "since",
        "begun",
        "ended",
        "idleSince",
        "quietSince",
        "unannounced",
        "silentSince",
        "nextBurst",
    }
)
_EXPECTED: Final = "nextBurst"  # may lie in the future


def _is_sane(status: dict[str, Any]) -> bool:
    try:
        RewardPoolStatus.model_validate(status, extra="ignore")
    except (ValidationError, *NONSENSE):
        return False
    return True


def _name(item: T, name: Callable[[T], object]) -> str:
    try:
        return printable(name(item), most=253)
    except NONSENSE:
        return "without a name"

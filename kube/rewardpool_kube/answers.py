"""The one place where answers of an API server are read.

Whatever it says, or something in its place, becomes an object of the form that callers rely on, or an error.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object
from rewardpool_runtime.untrusted import printable

INVALID_ANSWER: Final = "InvalidAnswer"
LONGEST_REASON: Final = 100
LONGEST_WORDS: Final = 300  # characters; they end up in conditions and logs


@dataclass(frozen=True)
class Page:
    """A part of a list."""

    items: list[Object]
    version: str
    """Resource version of the whole list, from which a watch goes on."""
    next: str = ""
    """Token of the next page; empty on the last one."""


@dataclass(frozen=True)
class WatchEvent:
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


def _parsed(raw: bytes) -> Any:
    """Return the JSON that an API server wrote.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        # orjson takes a third of json's time, and may refuse what is JSON to `json`.
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return json.loads(raw)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def answer_of(call: str, status: int, raw: bytes) -> Object:
    """Return the JSON object of an answer.

    Raises:
        KubeError: the call was refused, or the answer is not a JSON object.
    """
    try:
        answer = _parsed(raw)
    except ValueError:
        answer = None
    if status >= 400 or not isinstance(answer, dict):
        raise _refusal(call, status, answer, raw)
    return answer


def invalid_answer(call: str, status: int, problem: str) -> KubeError:
    """An answer that no API server gives."""
    return KubeError(
        call, status=status, reason=INVALID_ANSWER, message=f"not an API server's answer: {problem}", is_status=False
    )


def checked_object(call: str, answer: object) -> Object:
    """Return the answer as it is: an object with a name and a version, which callers rely on.

    Raises:
        KubeError: it is not one.
    """
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(metadata, dict):
        raise invalid_answer(call, 200, "it has no metadata")
    if not isinstance(metadata.get("name"), str) or not isinstance(metadata.get("namespace", ""), str):
        raise invalid_answer(call, 200, "its metadata has no name")
    _check_version(call, metadata)
    return answer


def checked_page(call: str, answer: Object) -> Page:
    """Return a part of a list.

    Raises:
        KubeError: it is not one.
    """
    items, metadata = answer.get("items"), answer.get("metadata")
    if not isinstance(items, list) or not isinstance(metadata, dict):
        raise invalid_answer(call, 200, "it has no items or no metadata")
    following = metadata.get("continue") or ""
    if not isinstance(following, str):
        raise invalid_answer(call, 200, "its metadata.continue is not a text")
    return Page(
        items=[checked_object(call, item) for item in items], version=_check_version(call, metadata), next=following
    )


def watch_event(call: str, line: bytes) -> WatchEvent:
    """Return what a line of a watch says.

    Raises:
        KubeError: it is an error's, or not an event.
        KubeUnreachableError: the line is not JSON, since it broke off.
    """
    try:
        event = _parsed(line)
    except ValueError:
        raise KubeUnreachableError(f"{call}: broke off within a line") from None
    kind, found = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
    if kind == "ERROR":
        code = found.get("code") if isinstance(found, dict) else None
        raise _refusal(call, code if type(code) is int else 500, found, line)
    if kind == "BOOKMARK" and isinstance(found, dict) and isinstance(found.get("metadata"), dict):
        _check_version(call, found["metadata"])
        return WatchEvent("BOOKMARK", found)
    if kind not in ("ADDED", "MODIFIED", "DELETED"):
        raise invalid_answer(call, 200, "a line of it is not an event")
    return WatchEvent(kind, checked_object(call, found))


def _check_version(call: str, metadata: Object) -> str:
    version = metadata.get("resourceVersion")
    if not isinstance(version, str) or not (version.isascii() and version.isdecimal()):
        raise invalid_answer(call, 200, "its metadata has no resourceVersion")
    return version


def _refusal(call: str, status: int, said: object, raw: bytes) -> KubeError:
    fields = said if isinstance(said, dict) else {}
    reason, message = fields.get("reason"), fields.get("message")
    return KubeError(
        call,
        status=status,
        reason=printable(reason, most=LONGEST_REASON) if isinstance(reason, str) else "",
        message=printable(message if isinstance(message, str) else raw.decode(errors="replace"), most=LONGEST_WORDS),
        is_status=fields.get("kind") == "Status",
    )

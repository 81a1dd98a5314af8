"""What an operator holds in memory: the largest collection and the longest text that are reached from it, and
the names that are in it.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

Key = tuple[str, str]


BOUNDED: Final = "._deleted"
"""How the way to the one collection ends that has a bound of its own, which is larger than any run makes it."""


def largest(root: object) -> tuple[int, str]:
    """Return the size of the largest collection that is reached from there, and the way to it."""
    found = ((len(found), way) for way, found in _collections(root) if not way.endswith(BOUNDED))
    return max(found, default=(0, ""))


def longest(root: object) -> tuple[int, str]:
    """Return the length of the longest text that a collection there has, and the way to it."""
    found = (
        (len(text), way)
        for way, one in _collections(root)
        for text in (one.values() if isinstance(one, dict) else one)
        if isinstance(text, str)
    )
    return max(found, default=(0, ""))


def holding(root: object, key: Key) -> list[str]:
    """Return the ways to those that have a pool of this namespace and name as a key or an entry."""
    return sorted(way for way, found in _collections(root) if key in found)


def _collections(root: object) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    left: list[tuple[str, object]] = [("", root)]
    while left:
        way, one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            yield way, one
            left += ((f"{way}[]", value) for value in one.values())
        elif isinstance(one, list | tuple | set | frozenset | deque):
            yield way, one
            left += ((f"{way}[]", value) for value in one)
        elif type(one).__module__.startswith(("rewardpool_operator", "rewardpool_control", "rewardpool_kube")):
            left += ((f"{way}.{name}", value) for name, value in _fields(one))


def _fields(one: object) -> Iterator[tuple[str, object]]:
    yield from getattr(one, "__dict__", {}).items()
    for kind in type(one).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(one, name):
                yield name, getattr(one, name)

"""Parts that many objects have in common, kept once.

json and rendering make every string and every probe of a container anew, and the pods and Deployments of a thousand
pools are much the same.
"""

from functools import lru_cache
from sys import intern
from typing import Any


def kept_once(value: Any) -> Any:
    """Return the JSON value, not to be changed in place, with equal strings and plain objects that are kept already."""
    if isinstance(value, str):
        return intern(value)
    if isinstance(value, dict):
        if not any(isinstance(entry, dict | list) for entry in value.values()):
            # With the types: to Python, 1 is True.
            return _plain(tuple((name, entry, type(entry)) for name, entry in value.items()))
        return {intern(name): kept_once(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [kept_once(entry) for entry in value]
    return value


@lru_cache(maxsize=4096)
def _plain(items: tuple[tuple[str, Any, type], ...]) -> dict[str, Any]:
    return {intern(name): kept_once(value) for name, value, _ in items}

"""Scales: the answers that a judge may give, and the score of each.

A value is read as a whole. One that is off the scale, or not written as the scale's answers are, is `Unreadable`: the
judge is asked again, and nothing is bent into a number.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)

_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_SHARE = re.compile(rf"(?P<value>{_NUMBER})(?:\s*/\s*(?P<of>{_NUMBER}))?")
# May surround an answer. No full stop: `.5` begins with one.
_WRAPPING = "\"'`*_ \t\r\n"


class Unreadable(Exception):  # noqa: N818 - asked for again, so not yet an error
    """A judge's answer without a verdict in the declared form; the text gives the reason."""


class Scale(Protocol[T_co]):
    """The answers that a judge may give, each of which stands for a `T_co`."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of an answer."""

    def labels(self) -> list[str]:
        """Return every answer as text. Raises ValueError if there are too many."""

    def words(self) -> str:
        """Return the answers in words, for a prompt."""

    def read(self, value: Any) -> T_co:
        """Return the score of a JSON value, or of an answer as text. Raises Unreadable."""


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`, both included; with `whole` only whole numbers."""

    low: float
    high: float
    whole: bool = True

    def schema(self) -> dict[str, Any]:
        if self.whole:
            return {"type": "integer", "minimum": int(self.low), "maximum": int(self.high)}
        return {"type": "number", "minimum": self.low, "maximum": self.high}

    def labels(self) -> list[str]:
        if not self.whole or self.high - self.low > 100:
            raise ValueError("takes labels, or a range of at most 101 whole numbers")
        return [str(number) for number in range(int(self.low), int(self.high) + 1)]

    def words(self) -> str:
        return f"a {'whole ' if self.whole else ''}number from {self.low:g} to {self.high:g}"

    def read(self, value: Any) -> float:
        """Return a number on the scale, given as JSON or as text such as "7", "1e-1" or "7/10". Raises Unreadable."""
        if isinstance(value, str):
            found = _SHARE.fullmatch(value.strip(_WRAPPING))
            if found is None:
                raise Unreadable(f"{value!r:.60} is not a number")
            if found["of"] is not None and float(found["of"]) != self.high:
                raise Unreadable(f"{value!r:.60} is out of {found['of']}, not of {self.high:g}")
            value = float(found["value"])
        # bool is an int in Python.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unreadable(f"{value!r:.60} is not a number")
        # Compared before it becomes a float: a huge int does not fit into one.
        if not self.low <= value <= self.high:
            raise Unreadable(f"{value!r:.60} is not from {self.low:g} to {self.high:g}")
        if self.whole and value != math.floor(value):
            raise Unreadable(f"{value!r} is not a whole number")
        return float(value)


def _folded(label: str) -> str:
    return label.strip(_WRAPPING).rstrip(".").casefold()


@dataclass(frozen=True)
class Labels:
    """One of some words, each with its score; compared without case.

    Raises ValueError where two differ by case or punctuation alone, or one has no letters and digits.
    """

    scores: Mapping[str, float]

    def __post_init__(self) -> None:
        folded = [_folded(label) for label in self.scores]
        if "" in folded or len(set(folded)) < len(folded):
            raise ValueError("labels must differ by more than case and punctuation, which are not compared")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": self.labels()}

    def labels(self) -> list[str]:
        return list(self.scores)

    def words(self) -> str:
        return "one of " + ", ".join(json.dumps(label, ensure_ascii=False) for label in self.scores)

    def read(self, value: Any) -> float:
        if isinstance(value, str):
            for label, score in self.scores.items():
                if _folded(label) == _folded(value):
                    return score
        raise Unreadable(f"{value!r:.60} is not {self.words()}")


@dataclass(frozen=True)
class Several:
    """A number for each of `count` responses, in their order."""

    each: Range
    count: int

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.each.schema(), "minItems": self.count, "maxItems": self.count}

    def labels(self) -> list[str]:
        raise ValueError("takes one number, and there is one for each response")

    def words(self) -> str:
        return (
            f"a list in square brackets of {self.count} scores in the order of the responses, each {self.each.words()}"
        )

    def read(self, value: Any) -> tuple[float, ...]:
        """Return the scores of a JSON list, or of text such as "[7, 3]" or "7, 3". Raises Unreadable."""
        if isinstance(value, str):
            bare = value.strip(_WRAPPING)
            value = (bare[1:-1] if bare[:1] == "[" and bare[-1:] == "]" else bare).split(",")
        if not isinstance(value, list) or len(value) != self.count:
            raise Unreadable(f"{value!r:.60} is not a list of {self.count} scores")
        return tuple(self.each.read(item) for item in value)


@dataclass(frozen=True)
class Rubric:
    """An answer to each of several criteria; the score is their mean by the weights, each above 0, by their names."""

    each: Range | Labels
    weights: Mapping[str, float]

    def schema(self) -> dict[str, Any]:
        properties = {name: self.each.schema() for name in self.weights}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def labels(self) -> list[str]:
        raise ValueError("takes one answer, and a rubric has several")

    def words(self) -> str:
        names = ", ".join(json.dumps(name, ensure_ascii=False) for name in self.weights)
        return f"an object with {names}, each of them {self.each.words()}"

    def read(self, value: Any) -> float:
        """Return the mean of a JSON object with an answer to every criterion and nothing else. Raises Unreadable."""
        if not isinstance(value, dict) or value.keys() != self.weights.keys():
            raise Unreadable(f"{value!r:.60} does not answer each criterion")
        total = sum(weight * self.each.read(value[name]) for name, weight in self.weights.items())
        return total / sum(self.weights.values())

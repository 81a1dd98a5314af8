"""What a judge may answer: a number in a range, or one of some labels; and how it is found in what the judge wrote.

An answer that is outside the range, ambiguous or no answer is `Unreadable`: it is asked for again, and never bent into
a number. Of several answers in a text the last one counts, because judges reason first.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)

_NUMBER = r"[-+]?\d+(?:\.\d+)?"
# Not the beginning of another number, of a percentage or of a span such as "7-8" and "1 to 10".
_ENDS = r"(?![\d%]|[.,]\d|\s*%|\s*[-\u2013\u2014~]\s*\d|\s*(?:to|or)\s+[-+]?\d)"
_OF = rf"(?:\s*(?:/|out of)\s*(?P<of>{_NUMBER}){_ENDS}(?!\s*/\s*\d))?"
# Bounded, or a judge that goes on with blanks would be read in quadratic time.
_DECORATION = r"""[\s"'`*_]{0,16}"""
_NAMED_NUMBER = re.compile(
    rf"(?:(?<![A-Za-z0-9])(?:score|rating|grade)(?![A-Za-z0-9]){_DECORATION}(?:\b(?:is|was|of)\b|[:=]|->)?{_DECORATION}"
    rf"|\[\[\s*|<answer>\s*|\\boxed\{{\s*)(?P<value>{_NUMBER}){_ENDS}{_OF}",
    re.IGNORECASE,
)
_SHARE = re.compile(
    rf"(?<![\d.,/-])(?P<value>{_NUMBER}){_ENDS}\s*(?:/|out of)\s*(?P<of>{_NUMBER}){_ENDS}(?!\s*/\s*\d)", re.IGNORECASE
)
_BARE_NUMBER = re.compile(rf"(?P<value>{_NUMBER}){_OF}", re.IGNORECASE)
_WRAPPING = "\"'`*_ \t\r\n."
_VERDICT_WORDS = r"(?:winner|verdict|answer|choice|label|judg[e]?ment|better(?:\s+(?:response|answer|one))?)"
_CANDIDATE_WORDS = r"(?:(?:response|answer|assistant|option)\s+)?"


class Unreadable(Exception):  # noqa: N818 - an answer that has to be asked for again, not a failure
    """A judge's answer that is none; the text says in what way."""


class Scale(Protocol[T_co]):
    """The answers that there are, each of which comes to a `T_co`."""

    def schema(self) -> dict[str, Any]:
        """The JSON schema of an answer."""

    def labels(self) -> list[str]:
        """Every answer as a text. Raises ValueError where they are too many."""

    def words(self) -> str:
        """The answers, for a prompt."""

    def read(self, value: Any) -> T_co:
        """The score of a JSON value. Raises Unreadable."""

    def find(self, text: str) -> T_co:
        """The score that a text without form gives. Raises Unreadable."""


@dataclass(frozen=True)
class Range:
    """A number from `low` to `high`, both included; whole ones alone if `whole`."""

    low: float
    high: float
    whole: bool = True

    def schema(self) -> dict[str, Any]:
        """The JSON schema of an answer."""
        if self.whole:
            return {"type": "integer", "minimum": int(self.low), "maximum": int(self.high)}
        return {"type": "number", "minimum": self.low, "maximum": self.high}

    def labels(self) -> list[str]:
        """Every answer as a text. Raises ValueError where they are too many."""
        if not self.whole or self.high - self.low > 100:
            raise ValueError("takes labels, or a range of at most 101 whole numbers")
        return [str(number) for number in range(int(self.low), int(self.high) + 1)]

    def words(self) -> str:
        """The answers, for a prompt."""
        return f"a {'whole ' if self.whole else ''}number from {self.low:g} to {self.high:g}"

    def read(self, value: Any) -> float:
        """The score of a JSON value, which may be a text such as "7" or "7/10". Raises Unreadable."""
        if isinstance(value, str):
            found = _BARE_NUMBER.fullmatch(value.strip(_WRAPPING))
            if found is None:
                raise Unreadable(f"{value!r:.60} is no number")
            return self._of_match(found)
        # bool is an int in Python; a huge int is no float.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unreadable(f"{value!r:.60} is no number")
        return self._checked(value)

    def find(self, text: str) -> float:
        """The last number that is called the score; else the last one of `high`; else the text, if it is a number."""
        matches = [*_NAMED_NUMBER.finditer(text)] or [
            match for match in _SHARE.finditer(text) if float(match["of"]) == self.high
        ]
        if matches:
            return self._of_match(matches[-1])
        if bare := _BARE_NUMBER.fullmatch(text.strip(_WRAPPING)):
            return self._of_match(bare)
        raise Unreadable("there is no score in it")

    def _of_match(self, found: re.Match[str]) -> float:
        if found["of"] is not None and float(found["of"]) != self.high:
            raise Unreadable(f"it is out of {found['of']}, not of {self.high:g}")
        return self._checked(float(found["value"]))

    def _checked(self, value: float) -> float:
        # Compared before it becomes a float, which a huge int cannot.
        if not self.low <= value <= self.high:
            raise Unreadable(f"{value!r:.60} is not from {self.low:g} to {self.high:g}")
        if self.whole and value != math.floor(value):
            raise Unreadable(f"{value!r} is no whole number")
        return float(value)


@dataclass(frozen=True)
class Labels:
    """One of some words, each with its score."""

    scores: Mapping[str, float]

    def schema(self) -> dict[str, Any]:
        """The JSON schema of an answer."""
        return {"type": "string", "enum": self.labels()}

    def labels(self) -> list[str]:
        """Every answer."""
        return list(self.scores)

    def words(self) -> str:
        """The answers, for a prompt."""
        return "one of " + ", ".join(json.dumps(label, ensure_ascii=False) for label in self.scores)

    def read(self, value: Any) -> float:
        """The score of a label; case counts only where labels differ by nothing else. Raises Unreadable."""
        if not isinstance(value, str):
            raise Unreadable(f"{value!r:.60} is no label")
        given = value.strip(_WRAPPING)
        if given in self.scores:
            return self.scores[given]
        alike = [label for label in self.scores if label.casefold() == given.casefold()]
        if len(alike) != 1:
            raise Unreadable(f"{value!r:.60} is not {self.words()}")
        return self.scores[alike[0]]

    def find(self, text: str) -> float:
        """The text, if it is a label; else the last label in [[...]], or called the winner, verdict, answer or so."""
        try:
            return self.read(text)
        except Unreadable:
            # Longest first, and as written: `a` is an article, `A` may be a label.
            labels = "|".join(re.escape(label) for label in sorted(self.scores, key=len, reverse=True))
            named = rf"(?i:\b{_VERDICT_WORDS}\b{_DECORATION}(?:\bis\b|[:=]|->)?{_DECORATION}{_CANDIDATE_WORDS})"
            end = r"""(?=[\s"'`*_.,;:!)\]]*(?:$|\n|[.,;:!)]))"""
            brackets = rf"(?:\[\[\s*|<answer>\s*)(?P<bracketed>{labels})\s*(?:\]\]|</answer>)"
            pattern = rf"{brackets}|{named}(?P<named>{labels}){end}"
            matches = list(re.finditer(pattern, text))
            if not matches:
                raise Unreadable(f"there is no verdict in it, {self.words()}") from None
            return self.scores[matches[-1]["bracketed"] or matches[-1]["named"]]


_NUMBERS = re.compile(rf"(?:\\boxed\{{|\[)\s*(?P<numbers>{_NUMBER}(?:\s*,\s*{_NUMBER}){{0,63}})\s*[\]}}]")


@dataclass(frozen=True)
class Several:
    """A number for each of `count` responses, in their order."""

    each: Range
    count: int

    def schema(self) -> dict[str, Any]:
        """The JSON schema of an answer."""
        return {"type": "array", "items": self.each.schema(), "minItems": self.count, "maxItems": self.count}

    def labels(self) -> list[str]:
        """Raises ValueError."""
        raise ValueError("takes one number, and there is one for each response")

    def words(self) -> str:
        """The answers, for a prompt."""
        return (
            f"a list in square brackets of {self.count} scores in the order of the responses, each {self.each.words()}"
        )

    def read(self, value: Any) -> tuple[float, ...]:
        """The scores of a JSON list. Raises Unreadable."""
        if not isinstance(value, list) or len(value) != self.count:
            raise Unreadable(f"{value!r:.60} is no list of {self.count} scores")
        return tuple(self.each.read(item) for item in value)

    def find(self, text: str) -> tuple[float, ...]:
        """The last list of numbers, in square brackets or in a box."""
        lists = list(_NUMBERS.finditer(text))
        if not lists:
            raise Unreadable("there is no list of scores in it")
        return self.read([number.strip() for number in lists[-1]["numbers"].split(",")])


@dataclass(frozen=True)
class Rubric:
    """An answer to each of several criteria; the score is their mean by the weights.

    Attributes:
        each: How a criterion is answered.
        weights: By the name of the criterion, greater than 0.
    """

    each: Range | Labels
    weights: Mapping[str, float]

    def schema(self) -> dict[str, Any]:
        """The JSON schema of an answer."""
        properties = {name: self.each.schema() for name in self.weights}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def labels(self) -> list[str]:
        """Raises ValueError."""
        raise ValueError("takes one answer, and a rubric has several")

    def words(self) -> str:
        """The answers, for a prompt."""
        names = ", ".join(json.dumps(name, ensure_ascii=False) for name in self.weights)
        return f"an object with {names}, each of them {self.each.words()}"

    def read(self, value: Any) -> float:
        """The mean of a JSON object's answers; one to every criterion, and to no other. Raises Unreadable."""
        if not isinstance(value, dict) or value.keys() != self.weights.keys():
            raise Unreadable(f"{value!r:.60} does not answer each criterion")
        total = sum(weight * self.each.read(value[name]) for name, weight in self.weights.items())
        return total / sum(self.weights.values())

    def find(self, text: str) -> float:
        """Raises Unreadable: only an object says which answer is to which criterion."""
        raise Unreadable("it has no object with an answer to each criterion")

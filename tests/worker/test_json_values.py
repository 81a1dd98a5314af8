"""What becomes of Python values on their way to a function and back: as they are, by a rule, or refused by name."""

import datetime
import enum
import json
import math
from collections import OrderedDict
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_runtime.json_values import MOST_DEPTH, NotJsonError, json_value


class Level(enum.StrEnum):
    EASY = "easy"


class Series:
    """Stands in for pandas.Series, which the frameworks' environment has: tests/frameworks/test_inputs.py."""

    def __init__(self, values: dict[Any, Any]) -> None:
        self._values = values
        self.index = list(values)

    def __len__(self) -> int:
        return len(self._values)

    def tolist(self) -> list[Any]:
        return list(self._values.values())

    def to_dict(self) -> dict[Any, Any]:
        return dict(self._values)


class NAType:
    """Stands in for the type of pandas.NA."""


@pytest.mark.parametrize(
    ("value", "as_json"),
    [
        (float("nan"), None),
        (numpy.float32("nan"), None),
        (NAType(), None),
        (numpy.datetime64("NaT"), None),
        (numpy.int64(3), 3),
        (numpy.float32(0.5), 0.5),
        (numpy.bool_(True), True),
        (numpy.str_("a"), "a"),
        (numpy.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (numpy.array(["a", None, float("nan")], dtype=object), ["a", None, None]),
        (numpy.datetime64("2026-01-02T03:04:05.000000006"), "2026-01-02T03:04:05.000000006"),
        (numpy.array(["2026-01-02", "NaT"], dtype="datetime64[ns]"), ["2026-01-02T00:00:00.000000000", None]),
        (Series({0: 1, 1: float("nan")}), [1, None]),
        (Series({"level": 1, "id": "a"}), {"level": 1, "id": "a"}),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), "2026-01-02T03:04:00+00:00"),
        (datetime.time(3, 4), "03:04:00"),
        (Level.EASY, "easy"),
        (OrderedDict(a=MappingProxyType({"b": 1})), {"a": {"b": 1}}),
    ],
)
def test_values_of_data_sets_become_json_by_a_rule(value: Any, as_json: Any) -> None:
    found = json_value(value, "extra_info")
    assert found == as_json
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ((1, 2), "extra_info is a tuple, which JSON cannot hold; give a list"),
        ({"a": [{"b": (1,)}]}, "extra_info.a[0].b is a tuple"),
        ({1: "a"}, "extra_info has the key 1 (an int), which JSON would make a text"),
        ({1, 2}, "extra_info is a set"),
        (b"a", "extra_info is a bytes, which JSON cannot hold; give a text"),
        (float("inf"), "extra_info is inf"),
        (1j, "extra_info is a complex"),
        (Decimal("0.1"), "extra_info is a Decimal"),
        (datetime.timedelta(1), "extra_info is a timedelta"),
        (numpy.timedelta64(1, "s"), "of dtype timedelta64[s]"),
        (numpy.array([1j]), "of dtype complex128"),
        (numpy.longdouble(1), "extra_info is a longdouble"),
        ("a\ud83d", "extra_info has '\\ud83d' in it, a lone surrogate"),
        pytest.param(10**5000, "more than 4000 digits", id="digits"),
        (object(), "extra_info is an object"),
        ((one for one in [1]), "extra_info is a generator"),
    ],
)
def test_what_json_would_change_is_refused_by_name(value: Any, said: str) -> None:
    with pytest.raises(NotJsonError) as caught:
        json_value(value, "extra_info")
    assert said in str(caught.value)


def test_what_contains_itself_is_refused() -> None:
    inner: list[Any] = []
    inner.append(inner)
    with pytest.raises(NotJsonError, match=f"more than {MOST_DEPTH} lists"):
        json_value(inner, "extra_info")


KEYS = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, types and the sign of zero included."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return (one, math.copysign(1, one)) == (other, math.copysign(1, other))
    return type(one) is type(other) and bool(one == other)


@given(JSON_VALUES)
def test_a_json_value_stays_as_it_is(value: Any) -> None:
    assert same(json_value(value, "it"), value)
    assert same(json.loads(json.dumps(json_value(value, "it"))), value)

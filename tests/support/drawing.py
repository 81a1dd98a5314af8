"""What hypothesis draws for the tests of hostile input: texts, JSON, and whatever an OpenAPI schema lets through.

hypothesis-jsonschema would draw from schemas, but its last release does not work with the hypothesis of this project,
and of JSON schema a CRD has a small, structural part.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from support.tried import EXAMPLES, SEED, TRIED

Schema = Mapping[str, Any]
Drawn = st.SearchStrategy[Any]

NASTY: Final = (
    "",
    " ",
    "\n\n",
    "\x00",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe",
    "\ufeff",
    "a\u0300" * 60,
    "%s%n{0}{pool}",
    "../../etc/passwd",
    "$(REWARDPOOL_KEY) ${HOME} `id`",
    "-",
    "0",
    "null",
    "-9223372036854775809",
    "1e999",
    "NaN",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "2026-01-01T00:00:00",
)

texts: Final[Drawn] = st.one_of(
    st.sampled_from(NASTY),
    st.builds(str.__mul__, st.sampled_from(["x", "[", "\U0001f4a5"]), st.sampled_from([254, 1100, 5000])),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
"""What an API server keeps: any text, but no half of a surrogate pair."""

loose_texts: Final[Drawn] = st.one_of(texts, st.sampled_from(["\ud800", "half \udfff a pair"]))
"""What programs answer: JSON can spell half of a pair, and Python reads it."""

numbers: Final[Drawn] = st.one_of(
    st.integers(-2, 3),
    st.sampled_from([2**31 - 1, -(2**31), 2**63, 10**400, 1e308, -0.0, float("nan"), float("inf"), 0.5]),
)

anything: Final[Drawn] = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, loose_texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(loose_texts, inner, max_size=3)),
    max_leaves=5,
)
"""Any JSON, and what Python takes for JSON."""


def mostly(good: Drawn, odd: Drawn = anything) -> Drawn:
    """Good three times of four."""
    return st.one_of(good, good, good, odd)


def objects(required: Mapping[str, Drawn], /, **optional: Drawn) -> Drawn:
    """JSON objects of which some fields may be missing."""
    return st.fixed_dictionaries(dict(required), optional=optional)


def as_json(value: Drawn) -> Drawn:
    """The value as JSON text."""
    return value.map(json.dumps)


def hostile(what: str, *, share: float = 1.0, **drawn: Drawn) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test a property of all of this, and count what is tried.

    Args:
        what: is tried, in the plural.
        share: of HOSTILE_EXAMPLES.
        drawn: argument -> what it may be.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def counted(**given: Any) -> None:
            TRIED[what] += 1
            test(**given)

        counted.__name__, counted.__doc__, counted.__module__ = test.__name__, test.__doc__, test.__module__
        limits = settings(
            max_examples=max(1, int(EXAMPLES * share)),
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        )
        return seed(SEED)(limits(given(**drawn)(counted)))

    return decorate


def draw_all(what: Drawn, count: int) -> list[Any]:
    """So many of it, no two alike, the same ones for the same seed; fewer where there are no more."""
    found: dict[str, Any] = {}

    @seed(SEED)
    @settings(
        max_examples=2 * count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(what)
    def draw(one: Any) -> None:
        if len(found) < count:
            found.setdefault(repr(one), one)

    draw()
    return list(found.values())


def from_schema(schema: Schema) -> Drawn:
    """What a structural OpenAPI schema lets through; rules between fields are left to the API server.

    Bounds are drawn more often than what lies between them.
    """
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.one_of(st.integers(0, 9), st.sampled_from(["1", "1Gi", "50%"]))
    if schema.get("x-kubernetes-preserve-unknown-fields") and "properties" not in schema:
        return st.dictionaries(texts, anything_kept, max_size=3)
    drawn = _BY_TYPE[schema["type"]](schema)
    return st.one_of(st.none(), drawn) if schema.get("nullable") else drawn


anything_kept: Final[Drawn] = st.recursive(
    st.one_of(st.booleans(), st.integers(-2, 2**40), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
"""JSON as an API server keeps it where a schema says nothing."""


def _string(schema: Schema) -> Drawn:
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", 6000)
    if schema.get("format") == "date-time":
        return st.sampled_from(
            ["0001-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "8999-12-31T00:00:00Z", "9999-12-31T23:59:59Z"]
        )
    if "pattern" in schema:
        # `$` of Python lets a line break through that RE2's does not.
        drawn: Drawn = st.from_regex(schema["pattern"].replace("$", r"\Z"))
    else:
        drawn = st.one_of(texts, st.just("x" * min(longest, 6000)))
    return drawn.filter(lambda text: shortest <= len(text) <= longest)


def _number(schema: Schema, *, whole: bool) -> Drawn:
    low, high = schema.get("minimum", -(2**31)), schema.get("maximum", 2**31 - 1)
    between = st.integers(int(low), min(int(high), int(low) + 8)) if whole else st.floats(low, min(high, low + 8))
    odd = [number for number in (0, 1, 3) if low <= number <= high]
    odd += [] if whole else [number for number in (0.5, 5e-324, 1e308, -1e308) if low <= number <= high]
    return st.one_of(between, st.sampled_from([low, high, *odd]))


def _array(schema: Schema) -> Drawn:
    most = min(schema.get("maxItems", 3), 3)
    return st.lists(from_schema(schema["items"]), min_size=schema.get("minItems", 0), max_size=most)


def _object(schema: Schema) -> Drawn:
    if "additionalProperties" in schema:
        return st.dictionaries(texts, from_schema(schema["additionalProperties"]), max_size=3)
    drawn = {name: from_schema(inner) for name, inner in schema.get("properties", {}).items()}
    required = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: value for name, value in drawn.items() if name in required},
        optional={name: value for name, value in drawn.items() if name not in required},
    )


_BY_TYPE: Final[Mapping[str, Callable[[Schema], Drawn]]] = {
    "string": _string,
    "integer": lambda schema: _number(schema, whole=True),
    "number": lambda schema: _number(schema, whole=False),
    "boolean": lambda _: st.booleans(),
    "array": _array,
    "object": _object,
}

"""A sample for a function as it travels: one JSON text in a request's `input`, because routers drop other fields."""

import json

from rewardpool_runtime.functions.outcome import FunctionArguments
from rewardpool_worker.engine_side.middleware.errors import InvalidRequestError


def parse_sample(text: str) -> FunctionArguments:
    """Read the JSON text that stands for a sample in a request's `input`.

    Raises:
        InvalidRequestError: not JSON, or other fields than those of `FunctionArguments`.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"a sample for a function is a JSON object as text, and this is not JSON: {error}"
        ) from None
    if not isinstance(given, dict):
        raise InvalidRequestError(f"a sample for a function is a JSON object, not a {type(given).__name__}")
    known = set(FunctionArguments.__dataclass_fields__)
    if unknown := sorted(set(given) - known):
        raise InvalidRequestError(f"a sample has no field {unknown[0]!r}; it has {', '.join(sorted(known))}")
    for name in ("data_source", "solution_str"):
        if not isinstance(given.get(name), str):
            raise InvalidRequestError(f"a sample's {name} must be a text")
    if not isinstance(given.get("extra_info"), dict | None):
        raise InvalidRequestError("a sample's extra_info must be an object or null")
    return FunctionArguments(**given)

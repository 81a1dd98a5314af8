"""Requests as callers write them: samples, conversations, and the model that is to score."""

import json
from collections.abc import Sequence
from typing import Any, TypeGuard

from rewardpool_api.contract import ADAPTER_USER, ANY_MODEL
from rewardpool_worker.engine_side.middleware.asgi import Scope
from rewardpool_worker.engine_side.middleware.errors import InvalidRequestError, OtherModelError

Sample = str | list[int]


def chosen_model(said: str, *, served: str, adapters: Sequence[str]) -> str:
    """Return the model that is to score, as the engine calls it; pure.

    Args:
        said: what `parse_request` returns.
        served: the served name.
        adapters: names of the LoRA adapters.

    Raises:
        OtherModelError: the worker has neither a model nor an adapter of that name.
    """
    name = said.removeprefix(ADAPTER_USER)
    if name in adapters or said == served:
        return name
    if said == ANY_MODEL:
        return served
    raise OtherModelError(said, served, adapters)


def parse_request(body: bytes) -> tuple[str, list[Sample]]:
    """Read a scoring request.

    Returns:
        The model's name, or `adapter:` and the name of the adapter that `user` chooses; and the samples: all texts, or
        all token ids.

    Raises:
        InvalidRequestError: not the contract's request.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise InvalidRequestError("the request is not a JSON object")
    model, given = request.get("model"), request.get("input")
    if not isinstance(model, str):
        raise InvalidRequestError("`model` must be a text")
    user = request.get("user")
    return user if isinstance(user, str) and user.startswith(ADAPTER_USER) else model, parse_samples(given)


def parse_samples(given: object) -> list[Sample]:
    """Return the samples of a request's `input`; raises what `parse_request` does."""
    if isinstance(given, str):
        return _whole_texts([given])
    if _is_token_ids(given):
        return [given]
    if isinstance(given, list) and given and _all_texts(given):
        return _whole_texts(given)
    if isinstance(given, list) and given and all(_is_token_ids(item) for item in given):
        return given
    raise InvalidRequestError("`input` must be a text, a list of texts, a list of token ids, or a list of such lists")


def _whole_texts(texts: list[str]) -> list[Sample]:
    """Return the texts, none of which has half of a character: JSON can write one, and no tokenizer can read it."""
    for index, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequestError(
                f"input {index} has half of a surrogate pair at character {error.start}, which is not text"
            ) from None
    return [*texts]


def _all_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_token_ids(value: Any) -> TypeGuard[list[int]]:
    # bool is an int in Python.
    return isinstance(value, list) and bool(value) and all(type(item) is int and item >= 0 for item in value)


MAX_DEPTH = 64  # engines fail at a depth of theirs, each at another


def parse_chat(body: bytes) -> dict[str, Any]:
    """Read a chat completion request as far as an engine could fail at it rather than refuse it.

    Raises:
        InvalidRequestError: it is no JSON object, has numbers or texts that JSON does not have, or is nested too deep.
    """
    try:
        request = json.loads(body)
        json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise InvalidRequestError("the request is not a JSON object")
    if _is_deeper(request, MAX_DEPTH):
        raise InvalidRequestError(f"the request is nested deeper than {MAX_DEPTH}")
    return request


def _is_deeper(value: Any, depth: int) -> bool:
    level = [each for each in (value,) if isinstance(each, (dict, list))]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    return bool(level)


# Engines would open other addresses as files of their own.
FETCHED = ("http://", "https://", "data:")


def refuse_media(scope: Scope, messages: Any) -> None:
    """Keep from an engine the files of its own machine, and what it would leave out and answer as if it had seen it.

    Raises:
        InvalidRequestError: the text names the part.
    """
    shown = getattr(getattr(scope.get("app"), "state", None), "shows_media", True)
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for index, part in enumerate(content if isinstance(content, list) else ()):
            kind = part.get("type") if isinstance(part, dict) else None
            where = f"messages[{place}].content[{index}]"
            # SGLang leaves these out where the model, or its chat template, takes text alone; our launcher notes that.
            if not shown and kind not in ("text", "input_text"):
                raise InvalidRequestError(f"{where} is {kind}, and this model takes text alone")
            for name, given in part.items() if isinstance(part, dict) else ():
                address = given.get("url") if isinstance(given, dict) else given
                # SGLang opens a path.
                if name.endswith("url") and isinstance(address, str) and not address.startswith(FETCHED):
                    raise InvalidRequestError(
                        f"{where}.{name} is {address!r:.60}, and a worker takes http(s) and data: addresses alone"
                    )

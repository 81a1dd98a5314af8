"""Mistakes in a config: all of them at once, each by its field's whole path.

pydantic finds the mistakes of one model, `Mistakes` gathers those of several models and of checks between them.
"""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from rewardpool.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
UNIONS = (Union, types.UnionType)


class Mistakes:
    """Gathers what checks raise, so that the next check runs too."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], None] = {}

    def add(self, field: str, problem: str) -> None:
        self._found[field, problem] = None

    @contextmanager
    def gather(self) -> Iterator[None]:
        """Within this block a ConfigError ends the block alone."""
        try:
            yield
        except ConfigError as error:
            self._found.update(dict.fromkeys(error.problems))

    def __len__(self) -> int:
        return len(self._found)

    def check(self) -> None:
        """Raise ConfigError with all of them, in the order in which they were found; return where there is none."""
        if self._found:
            (field, problem), *further = self._found
            raise ConfigError(field, problem, *further)


def unknown_key(key: str, known: Iterable[str]) -> str:
    return f"unknown key{did_you_mean(key, known)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message on a word that is not known: the nearest one that is; "" if none is near."""
    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def validated(model: type[M], raw: Mapping[str, Any], *, path: str, also: Iterable[str] = ()) -> M:
    """The part of a config as its model.

    Args:
        path: Leads to it in the config, "" if it is the whole config.
        also: Keys that may stand beside those of the model, for who misspells one.

    Raises:
        ConfigError: Fields are wrong; it names them all.
    """
    try:
        return model.model_validate(dict(raw))
    except ValidationError as error:
        raise _config_error(error, model, path=path, also=also) from error


def _config_error(error: ValidationError, model: type[BaseModel], *, path: str, also: Iterable[str]) -> ConfigError:
    # Of a field that may be one of several things pydantic complains once for each; the deepest complaint knows most.
    deepest: dict[tuple[Any, ...], tuple[str, str]] = {}
    depth: dict[tuple[Any, ...], int] = {}
    for one in error.errors(include_url=False, include_context=False):
        place = _Place(model, one["loc"])
        known = {*place.siblings, *(also if len(one["loc"]) == 1 else ())}
        problem = (
            unknown_key(str(one["loc"][-1]), known)
            if one["type"] == "extra_forbidden"
            else one["msg"].removeprefix("Value error, ")
        )
        if depth.get(place.owner, -1) < len(place.parts):
            depth[place.owner] = len(place.parts)
            deepest[place.owner] = (".".join(filter(None, [path, *place.parts])), problem)
    (field, problem), *further = deepest.values()
    return ConfigError(field, problem, *further)


class _Place:
    """Location of a complaint of pydantic's: for a union, pydantic adds the member that it tried, which is not a key.

    Attributes:
        parts: Keys and indices from the model to the field.
        owner: The same of the union that the field is in, or of the field itself.
        siblings: Keys that there are where its last key is.
    """

    def __init__(self, model: type[BaseModel], loc: Sequence[int | str]) -> None:
        self.parts: list[str] = []
        self.siblings: list[str] = []
        owner: tuple[Any, ...] | None = None
        there: Any = model
        for part in loc:
            there = _plain(there)
            if get_origin(there) in UNIONS:  # of several members: `_plain` has unwrapped the others
                owner = owner or tuple(self.parts)
                there = next((one for one in map(_plain, get_args(there)) if getattr(one, "__name__", "") == part), Any)
                continue
            self.parts.append(str(part))
            fields = there.model_fields if isinstance(there, type) and issubclass(there, BaseModel) else {}
            self.siblings = list(fields)
            there = fields[str(part)].annotation if part in fields else _element(there)
        self.owner = tuple(self.parts) if owner is None else owner


def _plain(kind: Any) -> Any:
    """The type without its metadata, and without None."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in UNIONS:
        members = [member for member in get_args(kind) if member is not type(None)]
        return _plain(members[0]) if len(members) == 1 else kind
    return kind


def _element(kind: Any) -> Any:
    if issubclass(get_origin(kind) or object, (Sequence, Mapping)):
        return next((one for one in reversed(get_args(kind)) if one is not Ellipsis), Any)
    return Any

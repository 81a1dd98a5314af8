"""Groups of a batch's rows: the responses to one problem, which are compared with each other."""

import hashlib
import json
import logging
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rewardpool._rewards.episode import Episode
from rewardpool._rewards.rating import Rating
from rewardpool.errors import ConfigError

log = logging.getLogger(__name__)


def groups_of(*columns: Sequence[Any]) -> list[int]:
    """Return the same number for rows that are equal in all of these columns, each of shape (rows,).

    Two problems may have one text, so prompts alone do not distinguish groups.
    """
    numbers: dict[tuple[str, ...], int] = {}
    keys = [tuple(map(_key, row)) for row in zip(*columns, strict=True)]
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _key(cell: Any) -> str:
    """Return the same text for equal cells; for one object where it is endless, or too deep or long to be written."""
    try:
        return json.dumps(_as_json(cell))
    except (RecursionError, TypeError, ValueError):
        return f"object {id(cell)}"


def _as_json(value: Any) -> Any:
    """Return what JSON can express of a value, the same for equal values and another for different ones."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {"mapping": sorted([repr(key), _as_json(one)] for key, one in value.items())}
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    try:
        return {"content": hashlib.sha256(pickle.dumps(value)).hexdigest()}  # a picture, an array, a date
    except Exception:  # objects raise what they like when they cannot be pickled
        return {"text": repr(value)}


def by_group(episodes: Sequence[Episode]) -> list[list[int]]:
    """Return the indices of the episodes by their group, in the order of the groups' first episodes.

    An episode that names no group is one alone.
    """
    return _by_key(
        ("group", episode.group) if episode.group is not None else ("alone", index)
        for index, episode in enumerate(episodes)
    )


def siblings(episodes: Sequence[Episode]) -> list[list[int]]:
    """Return the indices of the episodes by their group, as `by_group` does.

    Episodes that name no group are one where they are equal in everything but the response.
    """
    unnamed = [episode for episode in episodes if episode.group is None]
    numbers = iter(groups_of(*([getattr(row, name) for row in unnamed] for name in _OF_THE_PROMPT)))
    return _by_key(
        ("group", episode.group) if episode.group is not None else ("equal", next(numbers)) for episode in episodes
    )


def _by_key(keys: Iterable[Any]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return list(groups.values())


# Fields of an episode that are those of its siblings too.
_OF_THE_PROMPT = ("prompt", "ground_truth", "data_source", "extra_info")


def compared(episodes: Sequence[Episode]) -> list[list[int]]:
    """Return what `by_group` does, for a reward that compares the members; log a warning where none has a sibling.

    Raises:
        ConfigError: An episode names no group, so that it would be compared with nothing.
    """
    if any(episode.group is None for episode in episodes):
        raise ConfigError(
            "reward",
            "compares the responses to a prompt, and it is not known which those are: give every row its group, or"
            " call Reward with prompts and responses; a trainer that sends single samples needs another reward",
        )
    groups = by_group(episodes)
    if len(groups) == len(episodes) > 1:
        log.warning(
            "the reward compares the responses to a prompt, and each of these %d rows is a group of its own: rows of a"
            " group have the same prompt, ground_truth, data_source and extra_info, or are given the same group",
            len(episodes),
        )
    return groups


def in_order(groups: Sequence[Sequence[int]], rated: Sequence[Sequence[Rating]]) -> list[Rating]:
    """Return the ratings of episodes that were rated in groups; these are the places of each group's episodes."""
    by_place: dict[int, Rating] = {}
    for places, ratings in zip(groups, rated, strict=True):
        by_place.update(zip(places, ratings, strict=True))
    return [by_place[place] for place in range(len(by_place))]

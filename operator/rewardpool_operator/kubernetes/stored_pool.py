"""A pool as the API server has it, with its model: one version of one object, which no later one can slip into.

What is rendered, decided and reported as observedGeneration in one pass is made of one `StoredPool`.

An object may be stored that is not valid, since an older schema let it through. Then the model is of what is left
without the fields that are wrong. That is enough to find its routers and to say what is wrong with it, and it is never
rendered. What is wrong in the status is left out and written anew.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rewardpool_api import RewardPool
from rewardpool_api.rules import WITHOUT_RULES
from rewardpool_kube.resources import Object
from rewardpool_operator.left_out import with_sane_status

MOST_PROBLEMS: Final = 32
PLACEHOLDER: Final[Object] = {"model": {"source": "file:///unknown"}}


class PoolGoneError(RuntimeError):
    """The pool was deleted; there may be another one of its name."""


def check_uid(known: Object | None, uid: str | None) -> None:
    """Raise PoolGoneError where what is known by the pool's name is another pool; nothing where none is known."""
    if known is not None and known["metadata"]["uid"] != uid:
        metadata = known["metadata"]
        raise PoolGoneError(f"{metadata['namespace']}/{metadata['name']} was deleted and made anew")


@dataclass(frozen=True, kw_only=True)
class StoredPool:
    """One version of a pool."""

    object: Object
    pool: RewardPool
    problems: tuple[str, ...] = ()
    """Errors in metadata or spec, each beginning with the field's path; empty for a valid pool."""

    @classmethod
    def parse(cls, found: Object) -> Self:
        """The object with its model.

        Raises:
            ValueError: not even its metadata are those of an object.
        """
        sane = with_sane_status(found, now=datetime.now(UTC))
        try:
            # Fields of a newer CRD are ignored: after a rollback of the operator its pools are still reconciled.
            return cls(object=found, pool=RewardPool.model_validate(sane, extra="ignore"))
        except ValidationError as error:
            problems = [_in_words(detail) for detail in error.errors(include_url=False, include_input=False)]
        bare = {"metadata": found["metadata"], "spec": PLACEHOLDER, "status": sane["status"]}
        pool = _without_wrong_fields(sane) or _without_wrong_fields(bare)
        if pool is None:
            raise ValueError(f"not even its metadata are a pool's: {'; '.join(problems)}")
        metadata = pool.metadata.model_copy(update={"name": found["metadata"]["name"]})
        return cls(object=found, pool=pool.model_copy(update={"metadata": metadata}), problems=tuple(problems))

    @property
    def declared(self) -> Object:
        """All that rendering may depend on: metadata and spec, without what changes at every write of the status."""
        metadata = {name: value for name, value in self.object["metadata"].items() if name != "resourceVersion"}
        return {"metadata": metadata, "spec": self.object["spec"]}


def _in_words(detail: ErrorDetails) -> str:
    """The problem, with the field's path; a rule's message names the field itself."""
    path = ".".join(str(part) for part in detail["loc"])
    return detail["msg"] if detail["type"] == "rule" else f"{path}: {detail['msg']}"


def _without_wrong_fields(found: Object) -> RewardPool | None:
    """The model of the object without the fields that are wrong; None where that does not end well."""
    left: dict[str, Any] = {**deepcopy(found), "metadata": {**found["metadata"], "name": "unnamed"}}
    for _ in range(MOST_PROBLEMS):
        try:
            return RewardPool.model_validate(left, extra="ignore", context=WITHOUT_RULES)
        except ValidationError as error:
            if not _remove(left, error.errors(include_url=False, include_input=False)[0]["loc"]):
                return None
    return None


def _remove(left: dict[str, Any], loc: Sequence[int | str]) -> bool:
    """Remove the innermost part of that path that is there; whether there is one that may go."""
    parents: list[tuple[Any, Any]] = []
    place: Any = left
    part: Any
    for part in loc:
        # What is not there is the name of a kind among several, or a field that is missing: what lacks it goes.
        if (isinstance(place, dict) and part in place) or (isinstance(place, list) and part in range(len(place))):
            parents.append((place, part))
            place = place[part]
    if not parents:
        return False
    parent, part = parents[-1]
    if parent is left:
        if part != "spec" or left["spec"] == PLACEHOLDER:
            return False
        left["spec"] = PLACEHOLDER
    elif parent is left["spec"] and part == "model":
        parent["model"] = PLACEHOLDER["model"]
    else:
        del parent[part]
    return True

"""What the API server says of a token (TokenReview) and of its user's rights (SubjectAccessReview).

Answers are remembered for some seconds, by who asks and for what: a page that looks once a second, in however many
browsers, asks the API server no more often than that. Tokens themselves are not kept here, only their hashes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import Object, Resource

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews")
ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews")
REMEMBER_SECONDS: Final = 10.0
"""A token that was revoked, or a right that was taken, shows for so long at most."""
MAX_TOKENS: Final = 512
MAX_RIGHTS: Final = 8192
MAX_CALLS: Final = 8
"""Reviews at a time."""
_KINDS: Final = {TOKEN_REVIEWS: "TokenReview", ACCESS_REVIEWS: "SubjectAccessReview"}

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class User:
    """Whom the API server takes the holder of a token for."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Right:
    """What may be done in a namespace, or with "" in all of them."""

    verb: str
    resource: Resource
    namespace: str


class ReviewRefusedError(OSError):
    """The API server does not say now whose a token is, or what its user may do."""


def user_of(status: Mapping[str, Any]) -> User | None:
    """The user in the status of a TokenReview; None for a token that is not valid."""
    found = status.get("user") or {}
    if status.get("authenticated") is not True or not found.get("username"):
        return None
    extra = sorted((key, tuple(values)) for key, values in (found.get("extra") or {}).items())
    groups = tuple(found.get("groups") or ())
    return User(name=found["username"], uid=found.get("uid") or "", groups=groups, extra=tuple(extra))


def is_allowed(status: Mapping[str, Any]) -> bool:
    """Whether the status of a SubjectAccessReview allows it."""
    return status.get("allowed") is True and status.get("denied") is not True


class Remembered(Generic[K, V]):
    """Answers by question; whoever asks what is being asked already waits for the same answer. A failure is none."""

    def __init__(self, *, seconds: float, most: int, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._answers: OrderedDict[K, tuple[float, asyncio.Task[V]]] = OrderedDict()

    async def get(self, question: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer; raises what asking raises."""
        known = self._answers.get(question)
        if known is None or self._clock() >= known[0] or _has_failed(known[1]):
            task = asyncio.ensure_future(_asked(ask))
            task.add_done_callback(_has_failed)  # somebody who went away needs no words about it in the log
            known = self._answers[question] = (self._clock() + self._seconds, task)
            self._answers.move_to_end(question)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
        return await asyncio.shield(known[1])


class Reviews:
    """The API server, asked in the operator's own name."""

    def __init__(self, kube: Kube, *, clock: Callable[[], float] = monotonic) -> None:
        self._kube = kube
        self._calls = asyncio.Semaphore(MAX_CALLS)
        self._users: Remembered[bytes, User | None] = Remembered(seconds=REMEMBER_SECONDS, most=MAX_TOKENS, clock=clock)
        self._rights: Remembered[tuple[User, Right], bool] = Remembered(
            seconds=REMEMBER_SECONDS, most=MAX_RIGHTS, clock=clock
        )

    async def user(self, token: str) -> User | None:
        """Whose token it is; None for one that is not valid.

        Raises:
            ReviewRefusedError: nobody says so now.
        """

        async def ask() -> User | None:
            return user_of(await self._review(TOKEN_REVIEWS, {"token": token}))

        return await self._users.get(sha256(token.encode()).digest(), ask)

    async def may(self, user: User, verb: str, resource: Resource, namespace: str) -> bool:
        """Whether the user may do that in the namespace; whoever may do it everywhere is asked about once.

        Raises:
            ReviewRefusedError: nobody says so now.
        """
        everywhere = Right(verb=verb, resource=resource, namespace="")
        return await self._has(user, everywhere) or await self._has(user, replace(everywhere, namespace=namespace))

    async def _has(self, user: User, right: Right) -> bool:
        async def ask() -> bool:
            return is_allowed(await self._review(ACCESS_REVIEWS, access_spec(user, right)))

        return await self._rights.get((user, right), ask)

    async def _review(self, resource: Resource, spec: Object) -> Object:
        """The status that the API server gives a review.

        Raises:
            ReviewRefusedError: it gives none.
        """
        kind = _KINDS[resource]
        manifest = {"apiVersion": f"{resource.group}/{resource.version}", "kind": kind, "spec": spec}
        try:
            async with self._calls:
                return await self._kube.review(resource, manifest)
        except KubeUnreachableError:
            raise ReviewRefusedError("the API server does not answer") from None
        except KubeError as error:
            # Of a token nothing is said in it.
            raise ReviewRefusedError(
                f"the API server refuses the operator a {kind}: {error.reason or error.status}"
            ) from None


def access_spec(user: User, right: Right) -> Object:
    """What a SubjectAccessReview asks."""
    attributes = {"verb": right.verb, "group": right.resource.group, "resource": right.resource.plural}
    return {
        "user": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra},
        "resourceAttributes": {**attributes, "version": right.resource.version, "namespace": right.namespace},
    }


async def _asked(ask: Callable[[], Awaitable[V]]) -> V:
    return await ask()


def _has_failed(task: "asyncio.Task[Any]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)

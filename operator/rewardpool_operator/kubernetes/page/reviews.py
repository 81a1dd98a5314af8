"""Reviews of a token by the API server: its user (SelfSubjectReview), and the user's rights (SelfSubjectAccessReview).

Answers are remembered for some seconds, by who asks and for what: a page that looks once a second, in however many
browsers, asks the API server no more often than that. Tokens themselves are not kept here, only their hashes.
"""

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from rewardpool_kube.resources import Object, Resource
from rewardpool_operator.kubernetes.page.api_server import ApiServer
from rewardpool_runtime.bounded import read_text

USER_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews")
ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
REMEMBER_SECONDS: Final = 10.0  # a revoked token or right is still good for so long
MAX_TOKENS: Final = 512
MAX_RIGHTS: Final = 8192
MAX_CALLS: Final = 8
MAX_BYTES: Final = 256 << 10
ANONYMOUS: Final = "system:anonymous"
# A token with a space would be answered by the API server as an anonymous user's.
_TOKEN: Final = re.compile(r"[!-~]+")
_KINDS: Final = {USER_REVIEWS: "SelfSubjectReview", ACCESS_REVIEWS: "SelfSubjectAccessReview"}

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
    """Right in a namespace, or with "" in all of them."""

    verb: str
    resource: Resource
    namespace: str


class ReviewRefusedError(OSError):
    """The API server does not say now whose a token is, or what its user may do."""


def user_of(status: Mapping[str, Any]) -> User | None:
    """Return the user in the status of a SelfSubjectReview; None where that is nobody."""
    found = status.get("userInfo") or {}
    if found.get("username") in (None, "", ANONYMOUS):
        return None
    extra = sorted((key, tuple(values)) for key, values in (found.get("extra") or {}).items())
    groups = tuple(found.get("groups") or ())
    return User(name=found["username"], uid=found.get("uid") or "", groups=groups, extra=tuple(extra))


def is_allowed(status: Mapping[str, Any]) -> bool:
    """Return whether the status of a SelfSubjectAccessReview allows it."""
    return status.get("allowed") is True and status.get("denied") is not True


class AnswerCache(Generic[K, V]):
    """Answers by question; whoever asks what is being asked already waits for the same answer. A failure is none."""

    def __init__(self, *, seconds: float, most: int, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._answers: OrderedDict[K, tuple[float, asyncio.Task[V]]] = OrderedDict()

    async def get(self, question: K, ask: Callable[[], Awaitable[V]]) -> V:
        known = self._answers.get(question)
        if known is None or self._clock() >= known[0] or _has_failed(known[1]):
            task = asyncio.ensure_future(_awaited(ask))
            task.add_done_callback(_has_failed)  # somebody who went away needs no words about it in the log
            known = self._answers[question] = (self._clock() + self._seconds, task)
            self._answers.move_to_end(question)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
        return await asyncio.shield(known[1])


class Reviews:
    """The API server, asked in the name of each token's user."""

    def __init__(self, server: ApiServer, *, clock: Callable[[], float] = monotonic) -> None:
        self._server = server
        self._calls = asyncio.Semaphore(MAX_CALLS)
        self._users: AnswerCache[bytes, User | None] = AnswerCache(
            seconds=REMEMBER_SECONDS, most=MAX_TOKENS, clock=clock
        )
        self._rights: AnswerCache[tuple[bytes, Right], bool] = AnswerCache(
            seconds=REMEMBER_SECONDS, most=MAX_RIGHTS, clock=clock
        )

    async def user(self, token: str) -> User | None:
        """Return the user of a token; None where it is not valid.

        Raises:
            OSError: nobody says so now.
        """
        if not _TOKEN.fullmatch(token):
            return None

        async def call() -> User | None:
            return user_of(await self._review(USER_REVIEWS, token, {}))

        return await self._users.get(_hash(token), call)

    async def may(self, token: str, verb: str, resource: Resource, namespace: str) -> bool:
        """Return whether the token's user may do that in the namespace; a right in all namespaces is asked for once.

        Raises:
            OSError: nobody says so now.
        """
        everywhere = Right(verb=verb, resource=resource, namespace="")
        return await self._has(token, everywhere) or await self._has(token, replace(everywhere, namespace=namespace))

    async def _has(self, token: str, right: Right) -> bool:
        async def call() -> bool:
            return is_allowed(await self._review(ACCESS_REVIEWS, token, {"spec": access_spec(right)}))

        return await self._rights.get((_hash(token), right), call)

    async def _review(self, resource: Resource, token: str, asked: Object) -> Object:
        """The status that the API server gives a review; empty where it does not take the token.

        Raises:
            OSError: it gives none.
        """
        kind = _KINDS[resource]
        manifest = {"apiVersion": f"{resource.group}/{resource.version}", "kind": kind, **asked}
        async with self._calls, self._server.request(resource.path(""), token=token, body=manifest) as response:
            if response.status == 401:
                return {}
            try:
                said = json.loads(await read_text(response, limit_bytes=MAX_BYTES))
            except ValueError:
                said = None
        status = said.get("status") if isinstance(said, dict) else None
        if response.status >= 300 or not isinstance(status, dict):
            # Nothing of the answer, in which the token might be quoted.
            hint = "; the ClusterRole system:basic-user lets everybody ask for it" if response.status == 403 else ""
            raise ReviewRefusedError(f"the API server refuses a {kind} ({response.status}){hint}")
        return status


def access_spec(right: Right) -> Object:
    """Return the spec of a SelfSubjectAccessReview."""
    resource = right.resource
    named = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    return {"resourceAttributes": {**named, "verb": right.verb, "namespace": right.namespace}}


def _hash(token: str) -> bytes:
    return sha256(token.encode()).digest()


async def _awaited(call: Callable[[], Awaitable[V]]) -> V:
    return await call()


def _has_failed(task: "asyncio.Task[Any]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)

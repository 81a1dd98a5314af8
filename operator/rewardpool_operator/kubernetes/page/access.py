"""Whoever has a token of the cluster sees the pools that this token may read."""

from typing import Final

from rewardpool_kube.resources import PODS, POOLS
from rewardpool_operator.kubernetes.page.reviews import Reviews, User
from rewardpool_page.access import Viewer

HINT: Final = (
    "Paste a token of somebody who may read pools. `kubectl create token NAME --namespace NAMESPACE` makes one of a"
    " ServiceAccount, for an hour."
)


class TokenViewer:
    """Somebody who signed in by a token, which is kept in memory for as long as the session."""

    def __init__(self, token: str, user: User, reviews: Reviews) -> None:
        self.token = token
        self._user = user
        self._reviews = reviews

    @property
    def user(self) -> str:
        return self._user.name

    async def is_valid(self) -> bool:
        return await self._reviews.user(self.token) == self._user

    async def may_see(self, namespace: str) -> bool:
        return await self._reviews.may(self.token, "list", POOLS, namespace)

    async def may_see_workers(self, namespace: str) -> bool:
        return await self._reviews.may(self.token, "list", PODS, namespace)


class TokenAccess:
    """Judges tokens by the API server's word."""

    # By whatever name the user's Ingress has. A page of somebody else's has no token, and no session of this one.
    hosts: frozenset[str] | None = None
    hint: str = HINT

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews

    async def viewer(self, token: str) -> Viewer | None:
        user = await self._reviews.user(token)
        return None if user is None else TokenViewer(token, user, self._reviews)

"""Access to the page: a token is exchanged once for the secret of a session, so it is in no address and no log.

The token's judge differs (`PageAccess`): on one machine a file that only its user reads, in a cluster the API server.
The sessions are the same: random, in memory, bounded, and ended after a day. Whoever fails too often has to wait.
"""

import hmac
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from rewardpool_runtime.http_server import LOOPBACK

MAX_SESSIONS: Final = 1024
MAX_SESSIONS_OF_ONE: Final = 8
SESSION_SECONDS: Final = 24 * 3600.0
MAX_FAILURES: Final = 10
FAILURE_SECONDS: Final = 60.0
MAX_ADDRESSES: Final = 1024


class Viewer(Protocol):
    """Somebody who is signed in; each question raises OSError where whoever knows the answer is away."""

    @property
    def user(self) -> str:
        """Name of the user, by which open streams are counted."""

    async def is_valid(self) -> bool:
        """Return whether the token that began the session still counts."""

    async def may_see(self, namespace: str) -> bool:
        """Return whether the pools of this namespace may be shown."""

    async def may_see_workers(self, namespace: str) -> bool:
        """Return whether the workers of those pools may be shown, one by one."""


class PageAccess(Protocol):
    """Judges tokens."""

    hosts: frozenset[str] | None
    """Names in an address by which the page may be asked, without their ports; None means any."""
    hint: str

    async def viewer(self, token: str) -> Viewer | None:
        """Return the user of a token; None where it is not valid.

        Raises:
            OSError: nobody can say so now.
        """


class Everything:
    """May see all pools, as the user whose machine it is."""

    user = "the machine's"

    async def is_valid(self) -> bool:
        """The token lasts as long as its file."""
        return True

    async def may_see(self, namespace: str) -> bool:
        return True

    async def may_see_workers(self, namespace: str) -> bool:
        return True


class TokenFile:
    """Whoever can read this file may see everything. Only by loopback, and by its names: see `hosts`."""

    hosts: frozenset[str] | None = LOOPBACK
    hint = "Type `rewardpool page` on the machine whose pools these are, and open the address that it prints."

    def __init__(self, file: Path) -> None:
        self._file = file

    async def viewer(self, token: str) -> Viewer | None:
        expected = self._file.read_text().strip()
        return Everything() if expected and hmac.compare_digest(token.encode(), expected.encode()) else None


@dataclass(frozen=True)
class _Session:
    secret: str
    viewer: Viewer
    ends: float


class Sessions:
    """Those who are signed in; of too many, the oldest ends of the user who has most."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._sessions: list[_Session] = []

    def begin(self, viewer: Viewer) -> str:
        secret = secrets.token_urlsafe(32)
        self._sessions = [*self._living(), _Session(secret, viewer, self._clock() + SESSION_SECONDS)]
        held = Counter(one.viewer.user for one in self._sessions)
        if held[viewer.user] > MAX_SESSIONS_OF_ONE:
            self._end_oldest_of(viewer.user)
        elif len(self._sessions) > MAX_SESSIONS:
            self._end_oldest_of(held.most_common(1)[0][0])
        return secret

    def _end_oldest_of(self, user: str) -> None:
        self._sessions.remove(next(one for one in self._sessions if one.viewer.user == user))

    def find(self, secret: str) -> Viewer | None:
        """Return the user of a session; None where there is none, or it ended."""
        given = secret.encode(errors="surrogateescape")  # of a header, which has bytes
        return next((one.viewer for one in self._living() if hmac.compare_digest(one.secret.encode(), given)), None)

    def end(self, secret: str) -> None:
        given = secret.encode(errors="surrogateescape")  # of a header, which has bytes
        self._sessions = [one for one in self._living() if not hmac.compare_digest(one.secret.encode(), given)]

    def _living(self) -> list[_Session]:
        now = self._clock()
        return [one for one in self._sessions if one.ends > now]


class Failures:
    """Sign-ins that failed, by the address that they came from."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str) -> None:
        times = self._times.setdefault(address, deque(maxlen=MAX_FAILURES))
        times.append(self._clock())
        self._times.move_to_end(address)
        while len(self._times) > MAX_ADDRESSES:
            self._times.popitem(last=False)

    def seconds_to_wait(self, address: str) -> float:
        """Until the address may try again; 0 where it may now."""
        times = self._times.get(address)
        if times is None or len(times) < MAX_FAILURES:
            return 0.0
        return max(0.0, times[0] + FAILURE_SECONDS - self._clock())

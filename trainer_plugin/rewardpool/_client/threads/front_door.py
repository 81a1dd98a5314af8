"""Common part of `Reward` and `Teacher`: opened at their first use, closed once."""

import asyncio
import warnings
from typing import Any, Generic, Self, TypeVar

from rewardpool._client.threads.loop_thread import LoopThread
from rewardpool._client.threads.per_process import PerProcess

T = TypeVar("T", bound=LoopThread[Any])


class FrontDoor(Generic[T]):
    """A handle that opens what is behind it once in each process, and that `with` opens and closes for good."""

    _lazy: PerProcess[T]

    def __del__(self) -> None:
        # There is none where the configuration was wrong.
        lazy: PerProcess[T] | None = getattr(self, "_lazy", None)
        if lazy is not None and (opened := lazy.if_open) is not None:
            said = f"{self!r} was not closed; use `with`, or call close()"
            opened.stop()  # first: the warning may be raised
            warnings.warn(said, ResourceWarning, stacklevel=2, source=self)

    def _opened(self) -> T:
        return self._lazy.opened()

    def close(self) -> None:
        """Cancel what is in flight and close the connections, for good. May be called again."""
        self._lazy.close(for_good=True)

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

"""Objects that are opened once in each process, at their first use."""

import concurrent.futures
import os
import threading
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from rewardpool._client.threads.loop_thread import LoopThread

T = TypeVar("T", bound=LoopThread[Any])


class PerProcess(ABC, Generic[T]):
    """Opens something at the first call, for all threads of a process; copies in others (pickled, forked) open theirs.

    Subclasses keep what travels in `__getstate__`, with what this one has there.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self._forget()

    @abstractmethod
    def _open(self) -> T: ...

    @property
    @abstractmethod
    def _called(self) -> str: ...

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._opening: concurrent.futures.Future[T] | None = None
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {"is_closed": self.is_closed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def opened(self) -> T:
        """Return what is open in this process; opens it if that was not done yet.

        Callers that arrive while it is opened wait for that, and share its failure: the next call tries again.

        Raises:
            RuntimeError: It was closed for good.
            RewardPoolError: It cannot be opened.
        """
        if self._process != os.getpid():  # a fork: its threads and connections are the parent's
            self._forget()
        with self._lock:
            if self.is_closed:
                raise RuntimeError(f"{self._called} is closed; make another one")
            opening, is_first = self._opening, self._opening is None
            if opening is None:
                opening = self._opening = concurrent.futures.Future()
        if is_first:
            self._open_for_all(opening)
        return opening.result()

    def _open_for_all(self, opening: "concurrent.futures.Future[T]") -> None:
        try:
            opened = self._open()
        except BaseException as error:
            with self._lock:
                if self._opening is opening:
                    self._opening = None
            opening.set_exception(error)
            return
        opening.set_result(opened)

    @property
    def if_open(self) -> T | None:
        """The object that this process has opened; None where it has not."""
        opening = self._opening
        is_here = opening is not None and self._process == os.getpid() and opening.done()
        return opening.result() if opening is not None and is_here and opening.exception() is None else None

    def close(self, *, for_good: bool = False) -> None:
        """Close what this process has open; the next call opens it again, or with `for_good` raises.

        May be called again.
        """
        with self._lock:
            self.is_closed = self.is_closed or for_good
            opening, self._opening = self._opening, None
        if opening is not None and self._process == os.getpid():
            concurrent.futures.wait([opening])
            if opening.exception() is None:
                opening.result().close()

"""How far one has to read to follow the product: modules and calls of four walks, measured while they run.

    make walks            # WALKS=--modules lists them in the order in which they are entered

The API server, router and worker of a walk are the tests' fakes; what is counted is product code alone.
"""

import asyncio
import contextlib
import opcode
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from rooms import rooms  # noqa: E402
from support.fake_worker import FakeWorker  # noqa: E402
from support.local_pool import POOL, announced, on_this_machine, write_local_pool  # noqa: E402
from support.pool_surroundings import Surroundings  # noqa: E402

from rewardpool import Episode, Pool, RewardConfig  # noqa: E402
from rewardpool._rewards.open import open_reward  # noqa: E402

ROOMS: Final = tuple(f"{room}/" for room in rooms())
RESUME: Final = opcode.opmap["RESUME"]
WAIT_SECONDS: Final = 10.0


@dataclass
class Walk:
    """Product code that ran, on all threads.

    Attributes:
        modules: In the order of their first calls.
        calls: Of functions; a coroutine that is resumed is not called again.
        returns: Calls from one module into another that the walk had been in before.
    """

    modules: dict[str, None] = field(default_factory=dict)
    calls: int = 0
    returns: int = 0
    _last: str | None = None

    def note(self, frame: FrameType, event: str) -> None:
        """Count an event of `sys.setprofile`."""
        module = _module(frame)
        if module is None:
            return
        if event == "call" and _is_first(frame):
            self.calls += 1
            self.returns += module != self._last and module in self.modules
            self.modules[module] = None
        if event == "call":
            self._last = module
        elif event == "return" and frame.f_back is not None:
            self._last = _module(frame.f_back) or module


WALKING: list[Walk] = []
"""The walk that is being measured."""


@contextlib.contextmanager
def measured() -> Iterator[Walk]:
    """Measure what runs in the block, on every thread that `main` has begun."""
    walk = Walk()
    WALKING.append(walk)
    try:
        yield walk
    finally:
        WALKING.clear()


def _profile(frame: FrameType, event: str, _: Any) -> None:
    for walk in WALKING:
        walk.note(frame, event)


def _module(frame: FrameType) -> str | None:
    """Return the product's module that a frame runs; None for all other code, and for what a class body runs."""
    path = frame.f_code.co_filename
    return path if path.startswith(ROOMS) else None


def _is_first(frame: FrameType) -> bool:
    """Return whether a frame begins: one that goes on after `await` or `yield` is reported as a call too."""
    code = frame.f_code.co_code
    return code[frame.f_lasti] == RESUME and code[frame.f_lasti + 1] == 0


@contextlib.asynccontextmanager
async def served_pool() -> AsyncIterator[Surroundings]:
    """A pool that is as it should be, on a fake API server."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        around = Surroundings(monkeypatch)
        await around.bring_up()
        await around.reconcile()
        yield around


async def quiet_pass() -> Walk:
    """A pass over a pool that is as it should be."""
    async with served_pool() as around:
        with measured() as walk:
            written = await around.reconcile()
        if written:
            raise RuntimeError(f"the pass wrote: {written}")
        return walk


async def changed_manifest() -> Walk:
    """The pass from a manifest with another model to the Deployment of its revision."""
    async with served_pool() as around:
        with measured() as walk:
            around.declare(model={"source": "hf://org/another", "revision": "1" * 40, "type": "Discriminative"})
            written = await around.reconcile()
        if "create Deployment" not in written:
            raise RuntimeError(f"the pass made no Deployment: {written}")
        return walk


@contextlib.asynccontextmanager
async def local_pool(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A worker, and the state folder of a pool that leads to it."""
    with tempfile.TemporaryDirectory() as folder:
        on_this_machine(monkeypatch, Path(folder))
        async with FakeWorker() as worker:
            yield write_local_pool(Path(folder), url=worker.url, model_type="Function")


async def sample() -> Walk:
    """A sample through an open `Reward`, after another one."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with local_pool(monkeypatch), open_reward({"pool": POOL, "announce": False}) as reward:
            await reward.rate(Episode(prompt="?", response="one"))
            with measured() as walk:
                await reward.rate(Episode(prompt="?", response="another"))
            return walk


async def announcement() -> Walk:
    """From the begin of a rollout until its demand is in the state folder."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with local_pool(monkeypatch) as folder, Pool(RewardConfig(pool=POOL)) as pool:
            with pool.demand(samples=8) as demand:
                await _until(lambda: announced(folder) is not None)
                with measured() as walk:
                    demand.rollout(samples=64)
                    await _until(lambda: (found := announced(folder)) is not None and found.samples == 64)
            return walk


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110 - a file that another thread writes
            await asyncio.sleep(0.01)


WALKS: Final[Mapping[str, Callable[[], Coroutine[Any, Any, Walk]]]] = {
    "a pass that finds nothing to do": quiet_pass,
    "a changed manifest": changed_manifest,
    "one sample through `Reward`": sample,
    "an announcement": announcement,
}


def main() -> None:
    """Measure all walks and print them."""
    threading.setprofile(_profile)
    sys.setprofile(_profile)
    table = Table("walk", "modules", "returns", "calls")
    for name, walk in WALKS.items():
        found = asyncio.run(walk())
        table.add_row(name, str(len(found.modules)), str(found.returns), str(found.calls))
        if "--modules" in sys.argv:
            print(name, *(path.removeprefix(f"{ROOT}/") for path in found.modules), sep="\n  ")
    sys.setprofile(None)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

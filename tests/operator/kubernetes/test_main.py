"""The operator as a process: how kopf is used, as a frame that writes nothing, and what ends it."""

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from rewardpool_operator import main
from rewardpool_operator.kubernetes.cache.reflector import EtcdRestoredError
from rewardpool_operator.main import OperatorOptions, frame_settings, wiring


def test_kopf_writes_nothing_of_its_own() -> None:
    settings = frame_settings()
    assert not settings.posting.enabled
    assert settings.peering.standalone


@pytest.fixture
def signals() -> Iterator[None]:
    """The test process's own handlers again afterwards."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    kept = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, kept, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("signals")
def test_an_operator_that_is_stopped_before_kopf_runs_exits_with_0(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(settings: OperatorOptions) -> None:
        signal.raise_signal(number)
        await asyncio.Event().wait()

    monkeypatch.setattr(main, "serve", serve)
    with pytest.raises(SystemExit) as ended:
        main.run(OperatorOptions())
    assert ended.value.code == 0


async def test_kopf_watches_nothing() -> None:
    running = asyncio.ensure_future(asyncio.sleep(0))
    registry = wiring(running)
    parts = (registry._watching, registry._indexing, registry._spawning, registry._changing, registry._webhooks)
    assert not any(part.get_all_handlers() for part in parts)
    await running


@pytest.mark.usefixtures("signals")
def test_an_operator_whose_etcd_was_restored_ends_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(settings: OperatorOptions) -> None:
        raise ExceptionGroup("operator", [EtcdRestoredError("the version of pods went back from 9 to 5")])

    monkeypatch.setattr(main, "serve", serve)
    with pytest.raises(SystemExit, match=r"start the operator again \(the version of pods went back from 9 to 5"):
        main.run(OperatorOptions())


@pytest.mark.usefixtures("signals")
def test_a_defect_beside_a_restored_etcd_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(settings: OperatorOptions) -> None:
        raise ExceptionGroup("operator", [EtcdRestoredError("back"), ZeroDivisionError("a defect")])

    monkeypatch.setattr(main, "serve", serve)
    with pytest.raises(ExceptionGroup):
        main.run(OperatorOptions())


class Running:
    """A stand-in for what runs until it is cancelled, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.was_cancelled = False

    async def run(self) -> None:
        if self.error is not None:
            raise self.error
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


@pytest.mark.parametrize("failing", ["manager", "leadership"])
async def test_the_end_of_the_election_ends_the_operator_and_the_other_way_round(failing: str) -> None:
    parts: dict[str, Any] = {"manager": Running(), "leadership": Running()}
    parts[failing].error = ZeroDivisionError("a defect")
    with pytest.raises(ExceptionGroup) as caught:
        await main._run(parts["manager"], parts["leadership"])
    assert caught.value.subgroup(ZeroDivisionError) is not None
    assert next(one for name, one in parts.items() if name != failing).was_cancelled

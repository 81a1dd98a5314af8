"""What the operator answers at its sockets, and what no caller there can do."""

import asyncio
import errno
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from rewardpool_operator import operator_socket
from rewardpool_operator.operator_socket import HEALTH_PATH, METRICS_PATH, SECONDS, Answers, listen, request, serve

WELL = {"ok": True, "failing": {}}
UNWELL = {"ok": False, "failing": {"team-a/secret-project": "the key cannot be read"}}


def answering(said: object) -> Answers:
    async def answer() -> bytes:
        return json.dumps(said).encode()

    async def raise_() -> bytes:
        raise RuntimeError("a defect")

    return {HEALTH_PATH: answer, METRICS_PATH: raise_}


@asynccontextmanager
async def served(path: Path, answers: Answers, *, seconds: float = SECONDS) -> AsyncIterator[None]:
    with listen(path) as listener:
        task = asyncio.create_task(serve(listener, answers, seconds=seconds))
        try:
            yield
        finally:
            task.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "operator.sock"


async def test_an_answer_of_any_length_comes_whole(path: Path) -> None:
    said = "x" * 5_000_000
    async with served(path, answering(said)):
        assert json.loads(await request(path, HEALTH_PATH)) == said


@pytest.mark.parametrize(
    "asked", ["/pools", METRICS_PATH, f"{HEALTH_PATH}?x", f"GET {HEALTH_PATH} HTTP/1.1", "x" * 5000]
)
async def test_what_is_no_path_or_fails_has_no_answer_and_the_next_one_has(path: Path, asked: str) -> None:
    async with served(path, answering(WELL)):
        with pytest.raises(OSError, match="the operator does not answer"):
            await request(path, asked)
        assert json.loads(await request(path, HEALTH_PATH)) == WELL


async def is_answered(path: Path) -> bool:
    try:
        return bool(await request(path, HEALTH_PATH))
    except OSError:
        return False


async def test_who_says_nothing_or_reads_nothing_is_not_waited_for(path: Path) -> None:
    async with served(path, answering("x" * 5_000_000), seconds=0.2):
        with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as deaf:
            silent.connect(str(path))
            deaf.connect(str(path))
            deaf.sendall(f"{HEALTH_PATH}\n".encode())
            async with asyncio.timeout(60):
                while not await is_answered(path):  # noqa: ASYNC110 - a busy machine may have no answer in time
                    await asyncio.sleep(0.1)


async def test_an_answer_longer_than_any_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_socket, "MAX_ANSWER", 10)
    async with served(path, answering(WELL)):
        with pytest.raises(OSError, match="the operator does not answer"):
            await request(path, HEALTH_PATH)


async def test_who_asks_on_and_on_has_half_of_the_operators_time_at_most(path: Path) -> None:
    async def answer() -> bytes:
        await asyncio.sleep(0.05)
        return b"{}"

    async with served(path, {HEALTH_PATH: answer}):
        began = monotonic()
        await asyncio.gather(*(request(path, HEALTH_PATH) for _ in range(4)))
        assert monotonic() - began >= (4 + 3) * 0.05


async def test_a_socket_that_a_process_before_left_is_replaced(path: Path) -> None:
    listen(path).close()
    async with served(path, answering(WELL)):
        assert json.loads(await request(path, HEALTH_PATH)) == WELL


def test_no_other_file_is_replaced(path: Path) -> None:
    path.write_text("a manifest")
    with pytest.raises(OSError, match="in use"):
        listen(path)
    assert path.read_text() == "a manifest"


async def test_the_socket_outlives_a_connection_that_cannot_be_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    accept, refused = loop.sock_accept, [OSError(errno.EMFILE, "Too many open files")]

    async def accept_later(listener: socket.socket) -> Any:
        if refused:
            raise refused.pop()
        return await accept(listener)

    monkeypatch.setattr(operator_socket, "ACCEPT_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(loop, "sock_accept", accept_later)
    async with served(path, answering(WELL)):
        assert json.loads(await request(path, HEALTH_PATH)) == WELL


async def probed(path: Path) -> tuple[int, str]:
    """The exit status of the kubelet's probe, and what it says."""
    command = [sys.executable, "-m", "rewardpool_operator.healthy", str(path)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


async def test_an_operator_that_is_well_passes_its_probe(path: Path) -> None:
    async with served(path, answering(WELL)):
        assert await probed(path) == (0, "")


async def test_an_operator_that_is_not_well_fails_its_probe_and_names_no_pool(path: Path) -> None:
    async with served(path, answering(UNWELL)):
        assert await probed(path) == (1, '{"ok": false, "failing": 1}\n')


async def test_an_operator_that_hangs_fails_its_probe(path: Path) -> None:
    with listen(path):
        status, said = await probed(path)
    assert (status, said.startswith("the operator does not answer: ")) == (1, True)


async def test_an_operator_that_is_gone_fails_its_probe(path: Path) -> None:
    status, said = await probed(path)
    assert (status, said.startswith("the operator does not answer: ")) == (1, True)

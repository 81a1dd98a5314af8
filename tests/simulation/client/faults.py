"""What may happen to a pool and to the network before it. Each lasts so many seconds, and all is well after it."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, Final

from simulation.client.fleet import Asked, Fleet, Kind, Worker, http_answer
from simulation.client.network import Address, Cable, NetworkLoop
from simulation.virtual_time import VirtualTime

from rewardpool._discovery.endpoint import Endpoint, ServedModel
from rewardpool._discovery.pool_sources import LocalSource, SourceUnavailableError
from rewardpool.errors import PoolNotReadyError

HOST: Final = "pool.rl.svc"
PORT: Final = 80
POOL: Final = "rl/fleet"
NOTICED_SECONDS: Final = (0.5, 8.0)
"""Until the routers leave out a worker that does not answer."""
JOINED_SECONDS: Final = (0.1, 2.0)
"""Until they know one that does again."""
INVALID_BODIES: Final = (
    b"",
    b"<html>503 Service Unavailable</html>",
    b'{"data": []}',
    b'{"data": [{"index": 0, "embedding": []}], "request_id": "%s", "revision": "r1"}',
    b'{"data": [{"index": 0, "embedding": [NaN]}], "request_id": "%s", "revision": "r1"}',
    b'{"data": [{"index": 0, "embedding": [1e999]}], "request_id": "%s", "revision": "r1"}',
    b'{"data": [{"index": 0, "embedding": ["0.5"]}], "request_id": "%s", "revision": "r1"}',
    b'{"data": [{"index": 0, "embedding": [true]}], "request_id": "%s", "revision": "r1"}',
    b'{"data": [{"index": 1, "embedding": [0.5]}], "request_id": "%s", "revision": "r1"}',
    b'{"data": [{"index": 0, "embedding": [0.5]}, {"index": 0, "embedding": [0.5]}], "request_id": "%s"}',
    b'{"data": [{"index": 0, "embedding": [0.5]}], "request_id": 7, "revision": "r1"}',
    b'{"data": [{"index": 0, "embedding": [0.5]}], "request_id": "%s", "revision": ["r1"]}',
    b'{"data": [{"index": 0, "embed',
    b"[" * 5000,
    b"\xff\xfe\x00",
)
"""Each is HTTP 200 and no text's score; %s is the request's own id."""


@dataclass
class Whereabouts:
    """What discovery finds."""

    url: str
    key: str | None
    model_type: Any
    is_fixed_size: bool
    source: Any
    other_keys: tuple[str, ...] = ()
    is_away: bool = False
    not_ready: str = ""
    revisions: tuple[str, ...] = ("r1",)
    look_ups: int = 0


@dataclass
class Stage:
    """What a fault may break."""

    loop: NetworkLoop
    fleet: Fleet
    where: Whereabouts
    chance: random.Random
    """Of the faults."""
    time: VirtualTime
    cancel_client: Callable[[], None] = lambda: None
    cancel_some: Callable[[random.Random], None] = lambda _: None
    bad_share: float = 0.0
    notes: list[str] = field(default_factory=list)
    """What happened, for a violation's history."""

    def say(self, what: str) -> None:
        self.notes.append(f"{self.loop.time():9.3f} {what}")

    @property
    def addresses(self) -> list[Address]:
        return [router.address for router in self.fleet.routers]

    def worker(self) -> Worker:
        return self.chance.choice(self.fleet.workers)

    async def find(self, _: Any, *, require_ready: bool = True) -> Endpoint:
        """Look the pool up. Raises SourceUnavailableError."""
        where = self.where
        where.look_ups += 1
        await asyncio.sleep(self.chance.uniform(0.001, 0.02))
        if where.is_away:
            raise SourceUnavailableError("nobody answers")
        if where.not_ready and require_ready:
            raise PoolNotReadyError(where.not_ready)
        return Endpoint(
            url=where.url,
            key=where.key,
            other_keys=where.other_keys,
            pool=POOL,
            served_name="judge",
            model_type=where.model_type,
            revisions=tuple(
                ServedModel(revision=one, source="org/judge", served_name="judge") for one in where.revisions
            ),
            is_fixed_size=where.is_fixed_size,
            origin="the simulation",
            source=where.source,
            not_ready=where.not_ready,
        )


Play = Callable[[Stage, float], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """One of them.

    Attributes:
        play: What happens.
        seconds: Shortest and longest time that it lasts.
        loses: Whether samples may fail by it alone.
    """

    name: str
    play: Play
    seconds: tuple[float, float]
    loses: bool


FAULTS: Final[dict[str, Fault]] = {}


def fault(least: float, most: float, *, loses: bool = False) -> Callable[[Play], Play]:
    def named(play: Play) -> Play:
        name = play.__name__  # type: ignore[attr-defined]
        FAULTS[name] = Fault(name, play, (least, most), loses)
        return play

    return named


@fault(0.1, 0.2)
async def nothing(_: Stage, seconds: float) -> None:
    """For comparison, and so that each of the others is played alone too."""
    await asyncio.sleep(seconds)


async def _gone(stage: Stage, workers: list[Worker], seconds: float) -> None:
    for worker in workers:
        worker.kill()
    noticed = min(seconds, stage.chance.uniform(*NOTICED_SECONDS))
    await asyncio.sleep(noticed)
    for worker in workers:
        stage.fleet.leave(worker)
    await asyncio.sleep(seconds - noticed)
    for worker in workers:
        worker.is_up = True
    await asyncio.sleep(stage.chance.uniform(*JOINED_SECONDS))
    for worker in workers:
        stage.fleet.join(worker)


@fault(1, 10)
async def worker_killed(stage: Stage, seconds: float) -> None:
    await _gone(stage, [stage.worker()], seconds)


@fault(1, 15)
async def all_workers_gone(stage: Stage, seconds: float) -> None:
    await _gone(stage, list(stage.fleet.workers), seconds)


async def _silent(stage: Stage, workers: list[Worker], seconds: float) -> None:
    for worker in workers:
        worker.silence()
    noticed = min(seconds, stage.chance.uniform(*NOTICED_SECONDS))
    await asyncio.sleep(noticed)
    for worker in workers:
        stage.fleet.leave(worker)
    await asyncio.sleep(seconds - noticed)
    for worker in workers:
        worker.speak()
    await asyncio.sleep(stage.chance.uniform(*JOINED_SECONDS))
    for worker in workers:
        stage.fleet.join(worker)


@fault(1, 20)
async def worker_hangs(stage: Stage, seconds: float) -> None:
    """Stopped, or its packets dropped: it refuses nothing."""
    await _silent(stage, [stage.worker()], seconds)


@fault(1, 10)
async def all_workers_hang(stage: Stage, seconds: float) -> None:
    await _silent(stage, list(stage.fleet.workers), seconds)


async def _troubled(
    stage: Stage, seconds: float, trouble: Callable[[Asked, bytes], tuple[int, bytes]], *, kind: Kind | None = None
) -> None:
    worker = stage.worker()

    def troubled(asked: Asked, body: bytes) -> tuple[int, bytes]:
        status, changed = trouble(asked, body)
        if status == 200 and kind is not None:
            stage.fleet.ledger.failed(asked.only, kind)
        return status, changed

    worker.trouble = troubled
    await asyncio.sleep(seconds)
    if worker.trouble is troubled:
        worker.trouble = None


@fault(1, 10, loses=True)
async def worker_answers_500(stage: Stage, seconds: float) -> None:
    await _troubled(stage, seconds, lambda *_: (500, b"oops"))


@fault(1, 10)
async def worker_answers_429(stage: Stage, seconds: float) -> None:
    await _troubled(stage, seconds, lambda *_: (429, b"too much"))


@fault(1, 10, loses=True)
async def worker_sends_nonsense(stage: Stage, seconds: float) -> None:
    bodies = itertools.cycle(stage.chance.sample(INVALID_BODIES, len(INVALID_BODIES)))

    def nonsense(asked: Asked, _: bytes) -> tuple[int, bytes]:
        return 200, next(bodies).replace(b"%s", asked.header.encode())

    await _troubled(stage, seconds, nonsense, kind="invalid_response")


@fault(1, 10, loses=True)
async def worker_serves_another_model(stage: Stage, seconds: float) -> None:
    def other(asked: Asked, _: bytes) -> tuple[int, bytes]:
        error = '{"code":"wrong_model","message":"another model serves here","served":"other"}'
        return 200, f'{{"data":[],"error":{error},"request_id":"{asked.header}","revision":"r1"}}'.encode()

    await _troubled(stage, seconds, other, kind="wrong_model")


@fault(1, 10)
async def worker_is_slow(stage: Stage, seconds: float) -> None:
    worker = stage.worker()
    worker.more_seconds += 5.0
    await asyncio.sleep(seconds)
    worker.more_seconds -= 5.0


@fault(1, 10)
async def everything_is_slow(stage: Stage, seconds: float) -> None:
    for worker in stage.fleet.workers:
        worker.more_seconds += 1.0
    await asyncio.sleep(seconds)
    for worker in stage.fleet.workers:
        worker.more_seconds -= 1.0


@fault(0.2, 4)
async def router_restarted(stage: Stage, seconds: float) -> None:
    routers = stage.chance.sample(stage.fleet.routers, stage.chance.randint(1, len(stage.fleet.routers)))
    for router in routers:
        router.die()
    await asyncio.sleep(seconds)
    for router in routers:
        router.start()
    for worker in stage.fleet.workers:
        await asyncio.sleep(stage.chance.uniform(0.0, 1.0))
        for router in routers:
            if worker.is_up and worker not in router.listed:
                router.listed.append(worker)


@fault(1, 6)
async def network_cut(stage: Stage, seconds: float) -> None:
    addresses = stage.addresses
    for address in addresses:
        stage.fleet.network.cut(address, stage.loop.time())
    await asyncio.sleep(seconds)
    for address in addresses:
        stage.fleet.network.heal(address, stage.loop)


@fault(1, 8)
async def one_router_unreachable(stage: Stage, seconds: float) -> None:
    address = stage.chance.choice(stage.addresses)
    stage.fleet.network.cut(address, stage.loop.time())
    await asyncio.sleep(seconds)
    stage.fleet.network.heal(address, stage.loop)


@fault(1, 10)
async def network_slow(stage: Stage, seconds: float) -> None:
    network = stage.fleet.network
    before, network.latency = network.latency, (0.05, 0.4)
    await asyncio.sleep(seconds)
    network.latency = before


@fault(0.5, 5)
async def moved_with_another_key(stage: Stage, seconds: float) -> None:
    """To other addresses, which discovery knows some time later."""
    fleet = stage.fleet
    for router in fleet.routers:
        router.die()
    key = f"key-{stage.chance.randrange(10**9)}"
    for number, router in enumerate(fleet.routers, 1):
        host, port = router.address
        octets = host.split(".")
        router.address = (".".join([*octets[:2], str(int(octets[2]) + 1), str(number)]), port)
        router.keys = (key,)
        router.start()
        router.listed = [worker for worker in fleet.workers if worker.is_up and not worker.is_silent]
    addresses = stage.addresses
    await asyncio.sleep(seconds)
    if stage.addresses != addresses:  # it has moved again
        return
    _tell_address(stage)
    if all(router.keys == (key,) for router in fleet.routers):  # else a rotation has begun
        stage.where.key, stage.where.other_keys = key, ()


def _tell_address(stage: Stage) -> None:
    hosts = [address[0] for address in stage.addresses]
    if HOST in stage.where.url:
        stage.fleet.network.names[HOST] = hosts
    else:
        stage.where.url = f"http://{hosts[0]}:{PORT}"


@fault(2, 10)
async def key_rotated(stage: Stage, seconds: float) -> None:
    """The routers change to the new key one after the other."""
    new = f"key-{stage.chance.randrange(10**9)}"
    # The routers' own, not the one found: a pool that moves is found some time later.
    stage.where.other_keys, stage.where.key = stage.fleet.routers[0].keys, new
    for router, address in [(router, router.address) for router in stage.fleet.routers]:
        await asyncio.sleep(seconds / len(stage.fleet.routers))
        # Meanwhile the pool may have moved, with a key of its own, or another rotation have begun.
        if router.address == address and stage.where.key == new:
            router.keys = (new,)
    if stage.where.key == new:
        stage.where.other_keys = ()


@fault(1, 8)
async def name_unknown(stage: Stage, seconds: float) -> None:
    names = stage.fleet.network.names
    names.pop(HOST, None)
    await asyncio.sleep(seconds)
    names[HOST] = [address[0] for address in stage.addresses]


@fault(1, 20)
async def discovery_away(stage: Stage, seconds: float) -> None:
    stage.where.is_away = True
    await asyncio.sleep(seconds)
    stage.where.is_away = False


@fault(1, 10)
async def revisions_change(stage: Stage, seconds: float) -> None:
    """A rollout: one worker after the other leaves the routers, and comes back with the next revision."""
    new = f"r{int(stage.where.revisions[0][1:]) + 1}"
    stage.where.revisions = (*stage.where.revisions, new)
    for worker in stage.fleet.workers:
        stage.fleet.leave(worker)
        await asyncio.sleep(seconds / len(stage.fleet.workers))
        worker.revision = new
        if worker.is_up and not worker.is_silent:
            stage.fleet.join(worker)
    stage.where.revisions = (new,)


@fault(0.1, 0.2)
async def client_cancelled(stage: Stage, seconds: float) -> None:
    await asyncio.sleep(seconds)
    stage.cancel_client()


@fault(1, 5)
async def samples_cancelled(stage: Stage, seconds: float) -> None:
    for _ in range(10):
        await asyncio.sleep(seconds / 10)
        stage.cancel_some(stage.chance)


@fault(1, 5)
async def bad_samples(stage: Stage, seconds: float) -> None:
    stage.bad_share += 0.3
    await asyncio.sleep(seconds)
    stage.bad_share -= 0.3


async def _with_trouble(stage: Stage, seconds: float, trouble: Callable[[Asked], bool]) -> None:
    routers = list(stage.fleet.routers)
    for router in routers:
        router.trouble.append(trouble)
    await asyncio.sleep(seconds)
    for router in routers:
        router.trouble.remove(trouble)


@fault(1, 8)
async def router_too_busy(stage: Stage, seconds: float) -> None:
    """It asks for fewer requests, or has none to send them to, with all that a `Retry-After` may say."""
    share = stage.chance.choice((0.3, 1.0))
    statuses = stage.chance.choice(((429,), (503,), (408, 425, 502, 503, 504)))

    def busy(asked: Asked) -> bool:
        if stage.chance.random() > share:
            return False
        later = stage.time.now() + timedelta(seconds=stage.chance.randint(0, 3))
        header = stage.chance.choice(
            (
                "",
                "",
                *(f"Retry-After: {said}\r\n" for said in ("1", "soon", "-5", "¼", format_datetime(later, usegmt=True))),
            )
        )
        asked.router.fail(asked, stage.chance.choice(statuses), "busy", headers=header)
        return True

    await _with_trouble(stage, seconds, busy)


@fault(1, 8, loses=True)
async def connections_reset(stage: Stage, seconds: float) -> None:
    def reset(asked: Asked) -> bool:
        if stage.chance.random() < 0.7:
            return False
        asked.router.break_off(asked)
        return True

    await _with_trouble(stage, seconds, reset)


@fault(1, 5, loses=True)
async def another_server_at_the_address(stage: Stage, seconds: float) -> None:
    status = stage.chance.choice((404, 405, 401, 403, 400, 501, 301, 204))
    kinds: dict[int, Kind] = {401: "unauthorized", 403: "unauthorized"}

    def other(asked: Asked) -> bool:
        asked.router.fail(asked, status, kinds.get(status, "not_found"))
        return True

    await _with_trouble(stage, seconds, other)


async def _with_tamper(stage: Stage, seconds: float, tamper: Callable[[Asked, bytes], bytes | None]) -> None:
    routers = list(stage.fleet.routers)
    for router in routers:
        router.tampers.append(tamper)
    await asyncio.sleep(seconds)
    for router in routers:
        router.tampers.remove(tamper)


@fault(1, 8, loses=True)
async def answers_swapped(stage: Stage, seconds: float) -> None:
    """Two requests get each the other's answer."""
    kept: list[tuple[Asked, bytes]] = []

    def swap(asked: Asked, whole: bytes) -> bytes | None:
        if kept:
            other, its = kept.pop()
            for one in (other, asked):
                stage.fleet.ledger.failed(one.only, "invalid_response")
            other.router.send(other, whole)
            return its
        if stage.chance.random() < 0.3 and not asked.is_over:
            kept.append((asked, whole))
            return None
        return whole

    await _with_tamper(stage, seconds, swap)
    for asked, whole in kept:
        asked.router.send(asked, whole)


@fault(1, 8, loses=True)
async def answers_repeated(stage: Stage, seconds: float) -> None:
    """The answer before comes first, then nothing; or the right one comes twice."""
    last: list[bytes] = []

    def repeat(asked: Asked, whole: bytes) -> bytes | None:
        drawn = stage.chance.random()
        before = last[0] if last else whole
        last[:] = [whole]
        if drawn < 0.1:
            stage.fleet.ledger.failed(asked.only, "invalid_response")
            return before
        if drawn < 0.2:
            return whole + whole
        if drawn < 0.3:
            asked.router.send(asked, whole)
            asked.cable.answer(whole)
            return None
        if drawn < 0.4:
            stage.fleet.ledger.failed(asked.only, "invalid_response")
            return before + whole
        return whole

    await _with_tamper(stage, seconds, repeat)


@fault(1, 8, loses=True)
async def ids_changed_on_the_way(stage: Stage, seconds: float) -> None:
    """Something between trainer and workers writes its own id into the header."""

    def change(asked: Asked, whole: bytes) -> bytes | None:
        if stage.chance.random() < 0.6:
            return whole
        stage.fleet.ledger.failed(asked.only, "invalid_response")
        other = b"x" * len(asked.header)
        return whole.replace(b'"request_id":"' + asked.header.encode(), b'"request_id":"' + other)

    await _with_tamper(stage, seconds, change)


@fault(1, 8, loses=True)
async def answers_broken_off(stage: Stage, seconds: float) -> None:
    def half(asked: Asked, whole: bytes) -> bytes | None:
        if stage.chance.random() < 0.7:
            return whole
        asked.cable.answer(whole[: stage.chance.randrange(len(whole))], is_last=False)
        if stage.chance.random() < 0.5:
            asked.router.break_off(asked)
        else:
            stage.fleet.ledger.failed(asked.only, "worker")
            asked.is_over = True
            asked.cable.on_it.clear()
            asked.cable.end()
        return None

    await _with_tamper(stage, seconds, half)


@fault(1, 8, loses=True)
async def odd_http(stage: Stage, seconds: float) -> None:
    """Forms of an answer that a server may use, and bytes that are none."""

    def odd(asked: Asked, whole: bytes) -> bytes | None:
        if asked.is_odd:
            return whole  # two forms in one answer are none
        asked.is_odd = True
        head, _, body = whole.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
        match stage.chance.randrange(9):
            case 0:
                parts = (body[:7], body[7:])
                chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)
                return b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n" + chunks + b"0\r\n\r\n"
            case 1:  # the end of the connection is the end of the answer
                asked.router.send(asked, b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
                asked.cable.end()
                return None
            case 2:
                return b"HTTP/1.1 100 Continue\r\n\r\n" + whole
            case 3:
                for part in range(0, len(whole), 40):
                    asked.cable.answer(whole[part : part + 40], is_last=part + 40 >= len(whole))
                asked.is_over = True
                asked.cable.on_it.clear()
                return None
            case 4:
                stage.fleet.ledger.failed(asked.only, "busy")
                # Another server is there, so no judge began; one that answered 429 had not.
                if asked.is_chat and asked.began_at is not None and b" 429 " not in head:
                    stage.fleet.ledger.generations[asked.texts[0]] -= 1
                return b"SSH-2.0-OpenSSH_9.2\r\n"
            case 5:
                stage.fleet.ledger.failed(asked.only, "invalid_response")
                return b"\r\n".join([*lines, b"Content-Encoding: gzip", b"Content-Length: 2"]) + b"\r\n\r\n\x1f\x8b"
            case 6 if stage.chance.random() < 0.05:
                stage.fleet.ledger.failed(asked.only, "invalid_response")
                return b"\r\n".join([*lines, b"Content-Length: 9000000"]) + b"\r\n\r\n" + b" " * 5_000_000
            case 7:
                return whole.replace(b"\r\nContent-Length", b"\r\nConnection: close\r\nContent-Length")
        return whole

    await _with_tamper(stage, seconds, odd)


@fault(1, 10)
async def idle_connections_end(stage: Stage, seconds: float) -> None:
    """They are closed, reset, or get an answer that nobody asked for."""
    stray = http_answer(200, b'{"data":[{"index":0,"embedding":[0.5]}],"request_id":"another","revision":"r1"}')
    ends: tuple[Callable[[Cable], None], ...] = (Cable.end, Cable.reset, lambda cable: cable.answer(stray))
    for _ in range(20):
        await asyncio.sleep(seconds / 20)
        for cable in list(stage.fleet.network.open):
            if not cable.on_it and not cable.buffer and stage.chance.random() < 0.3:
                stage.chance.choice(ends)(cable)


@fault(1, 15)
async def odd_metrics(stage: Stage, seconds: float) -> None:
    """The question what is in work is answered by something else, late, or never."""
    answer = stage.chance.choice(
        (
            http_answer(200, b""),
            http_answer(200, b"\xff\x00{}"),
            http_answer(
                200, b"rewardpool_worker_places{} NaN\nrewardpool_worker_places{} -3\nrewardpool_worker_places 1e9\n"
            ),
            http_answer(500, b""),
            http_answer(404, b""),
            b"nonsense\r\n\r\n",
            None,
        )
    )
    late = stage.chance.choice((0.0, 0.3, 8.0))

    def odd(cable: Cable) -> bool:
        if answer is not None:
            stage.fleet.later(late, lambda: cable.answer(answer))
        return True

    routers = list(stage.fleet.routers)
    for router in routers:
        router.metrics = odd
    await asyncio.sleep(seconds)
    for router in routers:
        router.metrics = None


LOCAL: Final = LocalSource({})
PAIRS: Final = tuple(itertools.combinations_with_replacement(FAULTS, 2))
"""Of names; with `nothing` each is alone."""

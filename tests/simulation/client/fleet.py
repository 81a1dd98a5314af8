"""Routers and workers, as far as a client sees them, and the ledger of all that they did.

    request -> `Router`: key, trouble -> the `Worker` with the fewest -> a place -> the score -> the answer's bytes
                                      -> none: held, or refused at once (the two routers differ)

A score is a number of its text and of the revision that gave it, so that an answer of anybody else's shows.
"""

import random
import zlib
from asyncio import AbstractEventLoop, TimerHandle
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson
from simulation.client.network import Address, Cable, Network

from rewardpool_api.contract import (
    CHAT_PATH,
    REQUEST_ID_HEADER,
    SCORE_PATH,
    WANTED_REVISION,
    CallerError,
    CallerErrorCode,
    Fault,
)
from rewardpool_api.names import SERIES_PLACES, SERIES_REQUEST_SECONDS, WORKERS_METRICS_PATH

Kind = Literal[
    "worker",
    "broken",
    "invalid_response",
    "busy",
    "given_up",
    "waiting",
    "unauthorized",
    "not_found",
    "wrong_model",
    "other_revision",
]
"""Of a failure, as the client calls it; `given_up` are those of `busy` after which a judge may have answered.

A kept connection that is `broken` is no failure: the request goes on a new one.
"""
GIVEN_UP: Final = (408, 502, 504)
ROUTER_PATIENCE_SECONDS: Final = 30.0
METRICS_PATIENCE_SECONDS: Final = 5.0
OPENS_AFTER: Final = 20
"""Failures in a row of one worker, after which a router leaves it out."""
LEFT_OUT_SECONDS: Final = 30.0
LISTED_SECONDS: Final = 1.0
BAD: Final = "bad:"
_ID: Final = f"{REQUEST_ID_HEADER}: ".encode()


def score_of(text: str, revision: str) -> float:
    return zlib.crc32(f"{revision}|{text}".encode()) / 2**32


def judgement_of(text: str) -> str:
    return f"judged {zlib.crc32(text.encode()):08x}"


def bad_text(code: CallerErrorCode, fault: Fault, number: int) -> str:
    """One that every worker refuses, in that way."""
    return f"{BAD}{code}:{fault}:{number}"


def is_bad(text: str) -> bool:
    return BAD in text[:64]


def refusal_of(text: str) -> CallerError:
    code, fault = text[text.index(BAD) + len(BAD) :].split(":")[:2]
    return CallerError(code=code, message="the sample is bad", fault=fault)


@dataclass
class Ledger:
    """What the fleet did, by text; of requests for several texts only the scores are noted."""

    scored: set[tuple[str, str]] = field(default_factory=set)
    """Text and revision."""
    failures: dict[str, Counter[Kind]] = field(default_factory=dict)
    arrivals: dict[str, list[float]] = field(default_factory=dict)
    """When it came."""
    generations: Counter[str] = field(default_factory=Counter)
    """Of a judge, begun."""
    answered_at: list[float] = field(default_factory=list)
    """When a worker's own answer left."""
    requests: int = 0
    asked_in_work: int = 0
    """Requests for what a worker had in work for so long that it had been listed."""

    def failed(self, text: str | None, kind: Kind) -> None:
        if text is not None:
            self.failures.setdefault(text, Counter())[kind] += 1

    def weight(self, text: str) -> float:
        """What the failed attempts at workers count."""
        seen = self.failures.get(text, Counter[Kind]())
        return seen["worker"] + seen["invalid_response"] / 2


@dataclass(slots=True, eq=False)
class Asked:
    """One request at a router."""

    cable: Cable
    router: "Router"
    header: str
    """That its answer repeats."""
    id: str
    revision: str | None
    is_chat: bool
    texts: list[str]
    tries: int = 0
    came_at: float = 0.0
    began_at: float | None = None
    """When a worker began with it."""
    worker: "Worker | None" = None
    timer: TimerHandle | None = None
    is_over: bool = False
    is_odd: bool = False
    """The form of its answer was changed."""

    @property
    def only(self) -> str | None:
        """Its text, where it has one."""
        return self.texts[0] if len(self.texts) == 1 else None


class Worker:
    """One worker: places, a queue, and what is wrong with it."""

    def __init__(self, fleet: "Fleet", name: str, *, places: int, revision: str) -> None:
        self.fleet = fleet
        self.name = name
        self.places = places
        self.revision = revision
        self.is_up = True
        self.is_silent = False
        self.trouble: Callable[[Asked, bytes], tuple[int, bytes]] | None = None
        """Makes another answer of the right one."""
        self.more_seconds = 0.0
        self.waiting: deque[Asked] = deque()
        self.working: dict[Asked, None] = {}
        self._stuck: list[Callable[[], None]] = []

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.working)

    def take(self, asked: Asked) -> None:
        if not self.is_up:
            self.fleet.later(0.001, lambda: asked.router.worker_failed(asked, self))
            return
        asked.worker = self
        if self.is_silent:
            self.fleet.later(ROUTER_PATIENCE_SECONDS, lambda: self._gives_up(asked))
        self.waiting.append(asked)
        self._begin()

    def _gives_up(self, asked: Asked) -> None:
        if self.is_silent and asked.worker is self and not asked.is_over:
            self.forget(asked)
            asked.router.worker_failed(asked, self)

    def forget(self, asked: Asked) -> None:
        """Nobody waits for it any more."""
        asked.worker = None
        if asked.timer is not None:
            asked.timer.cancel()
            asked.timer = None
        if asked in self.working:
            del self.working[asked]
        elif asked in self.waiting:
            self.waiting.remove(asked)
        self._begin()

    def _begin(self) -> None:
        while self.waiting and len(self.working) < self.places and not self.is_silent:
            asked = self.waiting.popleft()
            asked.began_at = self.fleet.loop.time()
            self.working[asked] = None
            if asked.is_chat:
                self.fleet.ledger.generations[asked.texts[0]] += 1
            seconds = self.fleet.service_seconds() * (1 + len(asked.texts) / 8) + self.more_seconds
            asked.timer = self.fleet.loop.call_later(seconds, self._done, asked)

    def _done(self, asked: Asked) -> None:
        if self.is_silent:
            self._stuck.append(lambda: self._done(asked))
            return
        if asked not in self.working:
            return
        del self.working[asked]
        asked.timer = asked.worker = None
        status, body = 200, self._answer(asked)
        if self.trouble is not None:
            status, body = self.trouble(asked, body)
            if asked.is_chat and status == 429:  # it has not begun
                self.fleet.ledger.generations[asked.texts[0]] -= 1
        asked.router.worker_answered(asked, self, status, body)
        self._begin()

    def _answer(self, asked: Asked) -> bytes:
        revision = self.revision
        said = f'"request_id":"{asked.header}","revision":"{revision}","tokenizer":"t1"'
        if asked.revision is not None and asked.revision != revision and self.fleet.obeys_revisions:
            self.fleet.ledger.failed(asked.only, "other_revision")
            error = '{"code":"other_revision","message":"another revision serves here"}'
            return f'{{"object":"list","data":[],"error":{error},{said}}}'.encode()
        if asked.revision not in (None, revision):
            self.fleet.ledger.failed(asked.only, "other_revision")
        if asked.is_chat:
            choice = '{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}'
            return f'{{"choices":[{choice % judgement_of(asked.texts[0])}],{said}}}'.encode()
        if bad := next((text for text in asked.texts if is_bad(text)), None):
            return orjson.dumps(
                {**refusal_of(bad).to_wire(), "request_id": asked.header, "revision": revision, "tokenizer": "t1"}
            )
        scored, items = self.fleet.ledger.scored, []
        for index, text in enumerate(asked.texts):
            scored.add((text, revision))
            items.append(f'{{"index":{index},"embedding":[{score_of(text, revision)!r}]}}')
        return f'{{"object":"list","data":[{",".join(items)}],{said}}}'.encode()

    def kill(self) -> None:
        self.is_up, self.is_silent = False, False
        lost = [*self.working, *self.waiting]
        self.working.clear()
        self.waiting.clear()
        self._stuck.clear()
        for asked in lost:
            asked.worker = None
            if asked.timer is not None:
                asked.timer.cancel()
                asked.timer = None
        for asked in lost:
            asked.router.worker_failed(asked, self)

    def silence(self) -> None:
        """Stop it, or drop its packets."""
        if not self.is_up:
            return
        self.is_silent = True
        for asked in (*self.working, *self.waiting):
            self.fleet.later(ROUTER_PATIENCE_SECONDS, lambda asked=asked: self._gives_up(asked))  # type: ignore[misc]

    def speak(self) -> None:
        """Go on."""
        if self.is_silent:
            self.is_silent = False
            stuck, self._stuck = self._stuck, []
            for go_on in stuck:
                go_on()
            self._begin()


class Router:
    """One router's process."""

    def __init__(self, fleet: "Fleet", address: Address, *, refuses: bool, retries: int) -> None:
        """`refuses` at once where there is no worker, as smg does; else it holds the request for some time."""
        self.fleet = fleet
        self.address = address
        self.refuses = refuses
        self.retries = retries
        self.keys: tuple[str, ...] = ()
        self.listed: list[Worker] = []
        self.trouble: list[Callable[[Asked], bool]] = []
        """Each may answer a request in the place of the router."""
        self.tampers: list[Callable[[Asked, bytes], bytes | None]] = []
        """Each may change the bytes of an answer, or keep it."""
        self.metrics: Callable[[Cable], bool] | None = None
        """May answer a question about what is in work."""
        self._in_a_row: Counter[Worker] = Counter()
        self._left_out: dict[Worker, float] = {}

    def received(self, cable: Cable, data: bytes) -> None:
        if cable.buffer:
            data, cable.buffer = cable.buffer + data, b""
        end = data.find(b"\r\n\r\n")
        head = data[: end + 2]
        at = head.find(b"Content-Length: ")
        length = int(head[at + 16 : head.find(b"\r", at)]) if at >= 0 else 0
        if end < 0 or len(data) - end - 4 < length:
            cable.buffer = data
            return
        path = head[head.find(b" ") + 1 : head.find(b" HTTP/")].decode()
        if path.endswith(WORKERS_METRICS_PATH):
            self._say_metrics(cable)
            return
        self.fleet.ledger.requests += 1
        asked = self._read(cable, path, head, data[end + 4 :])
        cable.on_it.append(asked)
        if asked.only is not None:
            self.fleet.ledger.arrivals.setdefault(asked.only, []).append(asked.came_at)
        if self.fleet.lists_requests and self.fleet.has_in_work(asked):
            self.fleet.ledger.asked_in_work += 1
        if self.fleet.is_watched is not None and self.fleet.is_watched(asked.texts):
            self.fleet.say(f"request {asked.id[-6:]} comes to {self.address[0]} with {len(asked.texts)} texts")
        for trouble in self.trouble:
            if trouble(asked):
                return
        if self.keys and not any(f"Bearer {key}\r".encode() in head for key in self.keys):
            self.fail(asked, 401, "unauthorized")
            return
        self.dispatch(asked)

    def _read(self, cable: Cable, path: str, head: bytes, body: bytes) -> Asked:
        at = head.find(_ID) + len(_ID)
        header = head[at : head.find(b"\r", at)].decode()
        request_id, _, revision = header.partition(WANTED_REVISION)
        content = orjson.loads(body)
        if path.endswith(CHAT_PATH):
            texts = [content["messages"][0]["content"]]
        elif path.endswith(SCORE_PATH):
            given = content["input"]
            if isinstance(given, str):
                texts = [given]
            elif isinstance(given[0], int):
                texts = [",".join(map(str, given))]
            else:
                texts = given
        else:
            texts = [path]
        return Asked(
            cable,
            self,
            header,
            request_id,
            revision or None,
            path.endswith(CHAT_PATH),
            texts,
            came_at=self.fleet.loop.time(),
        )

    def left(self, cable: Cable) -> None:
        """See `Server`."""
        for asked in cable.on_it:
            asked.is_over = True
            if asked.worker is not None:
                asked.worker.forget(asked)
        cable.on_it.clear()

    def dispatch(self, asked: Asked) -> None:
        if asked.is_over:
            return
        now = self.fleet.loop.time()
        able = [worker for worker in self.listed if self._left_out.get(worker, 0.0) <= now]
        if not able:
            self._nobody(asked)
            return
        least = min(worker.load for worker in able)
        best = [worker for worker in able if worker.load == least]
        # The same text to the same worker, as routers do for the sake of its cache.
        best[zlib.crc32(asked.texts[0].encode()) % len(best)].take(asked)

    def _nobody(self, asked: Asked) -> None:
        if not self.refuses and self.fleet.loop.time() - asked.came_at < ROUTER_PATIENCE_SECONDS:
            asked.tries += 1
            self.fleet.later(min(5.0, 0.05 * 1.5**asked.tries), lambda: self.dispatch(asked))
        elif self.listed or not self.refuses:
            self.fail(asked, 503, "waiting", code="no_available_workers")
        else:
            self.fail(asked, 404, "waiting", code="model_not_found")

    def worker_failed(self, asked: Asked, worker: Worker) -> None:
        """A worker is gone, or silent for too long."""
        self._counts(worker)
        if asked.is_over:
            return
        asked.tries += 1
        if asked.tries <= self.retries:
            self.fleet.later(0.05 * asked.tries, lambda: self.dispatch(asked))
        else:
            self.fail(asked, self.fleet.chance.choice((502, 503, 504)))

    def worker_answered(self, asked: Asked, worker: Worker, status: int, body: bytes) -> None:
        if status != 200:
            self._counts(worker)
            if asked.is_over:
                return
            asked.tries += 1
            if asked.tries <= self.retries:
                self.fleet.later(0.05 * asked.tries, lambda: self.dispatch(asked))
            else:
                self.fail(asked, status)
            return
        self._in_a_row[worker] = 0
        if not asked.is_over:
            if body is not None and worker.trouble is None:
                self.fleet.ledger.answered_at.append(self.fleet.loop.time())
            self.reply(asked, 200, body)

    def _counts(self, worker: Worker) -> None:
        self._in_a_row[worker] += 1
        if self._in_a_row[worker] >= OPENS_AFTER:
            self._in_a_row[worker] = 0
            self._left_out[worker] = self.fleet.loop.time() + LEFT_OUT_SECONDS

    def fail(
        self, asked: Asked, status: int, kind: Kind | None = None, *, code: str = "failed", headers: str = ""
    ) -> None:
        """Answer with a failure."""
        kind = kind or ("worker" if status == 500 else "busy")
        self.fleet.ledger.failed(asked.only, kind)
        if status in GIVEN_UP:
            self.fleet.ledger.failed(asked.only, "given_up")
        body = f'{{"error":{{"code":"{code}","message":"trouble"}}}}'.encode()
        self.reply(asked, status, body, headers=headers)

    def reply(self, asked: Asked, status: int, body: bytes, *, headers: str = "") -> None:
        """Answer; what tampers with answers may change it."""
        whole = http_answer(status, body, headers=headers)
        for tamper in self.tampers:
            changed = tamper(asked, whole)
            if changed is None:
                return
            whole = changed
        self.send(asked, whole)

    def send(self, asked: Asked, whole: bytes) -> None:
        """Send the bytes of an answer."""
        if self.fleet.is_watched is not None and self.fleet.is_watched(asked.texts):
            self.fleet.say(f"request {asked.id[-6:]} is answered {whole[9:12]!r} {whole[-120:]!r}")
        asked.is_over = True
        if asked in asked.cable.on_it:
            asked.cable.on_it.remove(asked)
        asked.cable.answer(whole)

    def break_off(self, asked: Asked) -> None:
        """Reset the connection of a request."""
        asked.is_over = True
        self.fleet.ledger.failed(asked.only, "broken" if asked.cable.is_kept else "worker")
        asked.cable.on_it.clear()
        asked.cable.reset()

    def _say_metrics(self, cable: Cable) -> None:
        if self.metrics is not None and self.metrics(cable):
            return
        if any(worker.is_silent for worker in self.listed):
            self.fleet.later(METRICS_PATIENCE_SECONDS, lambda: cable.answer(http_answer(500, b"")))
            return
        self.fleet.later(0.004, lambda: cable.answer(http_answer(200, self._exposition())))

    def _exposition(self) -> bytes:
        now, lines = self.fleet.loop.time(), ["python_info 1.0\n"]
        for worker in self.listed if self.fleet.lists_requests else ():
            label = f'worker="{worker.name}"'
            lines.append(f"{SERIES_PLACES}{{{label}}} {worker.places}\n")
            for asked in (*worker.working, *worker.waiting):
                seconds = 0.0 if asked.began_at is None or asked in worker.waiting else now - asked.began_at
                lines.append(f'{SERIES_REQUEST_SECONDS}{{{label},request="{asked.id}"}} {seconds:.3f}\n')
        return "".join(lines).encode()

    def die(self) -> None:
        """End the process: what it had is lost."""
        for cable in [cable for cable in self.fleet.network.open if cable.address == self.address]:
            for asked in cable.on_it:
                self.fleet.ledger.failed(asked.only, "broken" if cable.is_kept else "worker")
            self.left(cable)
        self.fleet.network.stop(self.address)

    def start(self) -> None:
        """Listen, with an empty list."""
        self.listed = []
        self._in_a_row.clear()
        self._left_out.clear()
        self.fleet.network.listen(self.address, self)


class Fleet:
    """A pool."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        network: Network,
        chance: random.Random,
        *,
        service_seconds: tuple[float, float],
        lists_requests: bool,
        obeys_revisions: bool,
    ) -> None:
        """Prepare.

        Args:
            lists_requests: Its workers say what they have in work, as those of functions do.
            obeys_revisions: They score nothing that another revision is to score; else a trainer sees it by the answer.
        """
        self.obeys_revisions = obeys_revisions
        self.loop = loop
        self.network = network
        self.chance = chance
        self.ledger = Ledger()
        self.workers: list[Worker] = []
        self.routers: list[Router] = []
        self.lists_requests = lists_requests
        self.is_watched: Callable[[list[str]], bool] | None = None
        self.say: Callable[[str], None] = lambda _: None
        self._service_seconds = service_seconds

    def watch(self, is_watched: Callable[[list[str]], bool], say: Callable[[str], None]) -> None:
        """Have it told what becomes of some requests."""
        self.is_watched, self.say = is_watched, say

    def service_seconds(self) -> float:
        return self.chance.uniform(*self._service_seconds)

    def later(self, seconds: float, then: Callable[[], Any]) -> TimerHandle:
        return self.loop.call_later(seconds, then)

    def has_in_work(self, asked: Asked) -> bool:
        """Whether a worker works on the same request, and has for some time."""
        long_ago = self.loop.time() - LISTED_SECONDS
        return any(
            one.id == asked.id and (one.began_at or 0.0) < long_ago for worker in self.workers for one in worker.working
        )

    def join(self, worker: Worker) -> None:
        """Have every router list it."""
        for router in self.routers:
            if worker not in router.listed:
                router.listed.append(worker)

    def leave(self, worker: Worker) -> None:
        for router in self.routers:
            if worker in router.listed:
                router.listed.remove(worker)


_REASONS: Final = {200: "OK"}


def http_answer(status: int, body: bytes, *, headers: str = "") -> bytes:
    reason = _REASONS.get(status, "Trouble")
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body

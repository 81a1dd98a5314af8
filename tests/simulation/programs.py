"""What runs in the pods: workers with queues, and routers of both flavours with lists and metrics.

Timers in place of tasks: a sample that travels from a trainer by a router to a worker and back costs three of them.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from simulation.network import Network

from rewardpool_api import names
from rewardpool_api.contract import SCORE_PATH

NO_WORKER: Final = "no_available_workers"
ROUTER_CHECK_SECONDS: Final = 2.0
"""Between two of a router's own looks at its workers."""
RETRY_SECONDS: Final = 0.5
SETTLED_SECONDS: Final = 0.3
"""A router's change to its list happens in its background."""
MOST_TRIES: Final = 5
"""Workers that a router tries with one sample."""


@dataclass(eq=False)
class Sample:
    """A request of a trainer."""

    number: int
    pool: tuple[str, str]
    sent_at: float
    done: Callable[["Sample", "Worker | None", int], None]
    """Called with the worker that answered, or with a status."""
    answers: int = 0
    tries: int = 0
    router: "Router | None" = None


@dataclass(eq=False)
class Worker:
    """An engine: so many samples at a time, each for a while; a score once its model is loaded."""

    network: Network
    pod: str
    pool: tuple[str, str]
    pool_uid: str
    address: str
    keys: Callable[[], frozenset[str]]
    chance: random.Random
    seconds: float = 2.0
    loaded: bool = False
    dead: bool = False
    score: float = 0.5
    in_flight: dict[Sample, asyncio.TimerHandle] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> tuple[int, bytes]:
        if path == names.READY_PATH:
            if not self.loaded:
                return 503, orjson.dumps({"reason": "the engine loads the model"})
            return 200, orjson.dumps({"max_model_len": 4096, "tokenizer": "abc", "probe_score": self.score})
        valid = self.keys()
        if valid and headers.get("Authorization", "").removeprefix("Bearer ") not in valid:
            return 401, b'{"error": "key"}'
        if path == names.LOAD_PATH:
            return 200, orjson.dumps({"in_flight": len(self.in_flight)})
        if path == SCORE_PATH:
            return 200, orjson.dumps({"data": [{"index": 0, "embedding": [self.score]}]})
        return 404, b"{}"

    def take(self, sample: Sample, done: Callable[[Sample, bool], None]) -> None:
        """Work on a sample."""

        def finished() -> None:
            del self.in_flight[sample]
            done(sample, True)

        loop = asyncio.get_running_loop()
        waits = self.seconds * (1 + len(self.in_flight) / 8)
        self.in_flight[sample] = loop.call_later(self.chance.uniform(0.5, 1.5) * waits, finished)
        sample.failed = lambda: done(sample, False)  # type: ignore[attr-defined]

    def die(self) -> None:
        """The process ends; who waits for it notices."""
        self.dead = True
        self.network.endpoints.pop(self.address, None)
        for sample, timer in list(self.in_flight.items()):
            timer.cancel()
            sample.failed()  # type: ignore[attr-defined]
        self.in_flight.clear()


@dataclass(eq=False)
class Entry:
    """A worker on a router's list."""

    id: str
    url: str
    in_flight: int = 0
    answered: int = 0
    healthy: bool = True


class Router:
    """Holds a list of workers, and sends each sample to the least busy."""

    def __init__(self, network: Network, pod: str, pool: tuple[str, str], address: str, *, flavor: str) -> None:
        self.network, self.pod, self.pool, self.address, self.flavor = network, pod, pool, address, flavor
        self.admin_key = ""
        self.entries: dict[str, Entry] = {}
        self.adding: dict[str, str] = {}
        """Id -> url of a worker that is being added."""
        self.connections = 0
        self.retries = 0
        self.refusals = 0
        self.counted: dict[str, int] = {}
        self.dead = False
        self.odd: str | None = None
        """A fault: `metrics`, `list` or `500`."""
        self.on_remove: Callable[[Router, Entry], None] = lambda *_: None
        self.waiting: list[Sample] = []
        self._ids = count(1)

    def answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> tuple[int, bytes]:
        if path == "/metrics":
            return 200, b"nonsense {" if self.odd == "metrics" else self._metrics()
        if self.odd == "500":
            return 500, b"internal error"
        if headers.get("Authorization") != f"Bearer {self.admin_key}":
            return 401, b"{}"
        if method == "GET" and path == "/workers":
            return 200, b'{"workers": 3}' if self.odd == "list" else orjson.dumps({"workers": self._listed()})
        if method == "GET":
            status = {"job_status": {"status": "processing"}}
            return (200, orjson.dumps(status)) if path.rpartition("/")[2] in self.adding else (404, b"{}")
        if method == "POST":
            return self._add(body["url"])
        worker_id = path.rpartition("/")[2]
        found = next((entry for entry in self.entries.values() if entry.id == worker_id), None)
        if found is None:
            return 404, b"{}"
        self._later(lambda: self._remove(found))
        return 202, b"{}"

    def send(self, sample: Sample) -> None:
        """Take a trainer's sample."""
        self.connections += 1
        sample.router, sample.tries = self, 0
        self._route(sample)

    def remember(self, url: str) -> None:
        """Have an address on the list that nobody put there."""
        self.entries[url] = Entry(f"old-{next(self._ids)}", url, healthy=False)

    def look_at_workers(self) -> None:
        """Its own health checks."""
        for entry in self.entries.values():
            entry.healthy = self._worker(entry.url) is not None

    def die(self) -> None:
        self.dead = True
        self.network.endpoints.pop(self.address, None)
        self.network.endpoints.pop(self._metrics_address, None)
        waiting, self.waiting = self.waiting, []
        for sample in waiting:
            sample.done(sample, None, 502)

    def listen(self) -> None:
        self.network.endpoints[self.address] = self
        self.network.endpoints[self._metrics_address] = self

    @property
    def _metrics_address(self) -> str:
        return f"{self.address.rpartition(':')[0]}:{names.ROUTER_METRICS_PORT}"

    def _listed(self) -> list[dict[str, Any]]:
        return [
            {"id": one.id, "url": one.url, "load": one.in_flight, "is_healthy": one.healthy}
            for one in self.entries.values()
        ]

    def _add(self, url: str) -> tuple[int, bytes]:
        if url in self.entries:
            return 409, b"{}"
        worker_id = f"worker-{next(self._ids)}"
        self.adding[worker_id] = url
        self._later(lambda: self._try_to_add(worker_id))
        return 202, orjson.dumps({"worker_id": worker_id})

    def _try_to_add(self, worker_id: str) -> None:
        url = self.adding.get(worker_id)
        if url is None:
            return
        if self._worker(url) is None:
            # It tries an address until it answers, and cannot be told to stop.
            asyncio.get_running_loop().call_later(2.0, lambda: None if self.dead else self._try_to_add(worker_id))
            return
        del self.adding[worker_id]
        self.entries.setdefault(url, Entry(worker_id, url))
        waiting, self.waiting = self.waiting, []
        for sample in waiting:
            self._route(sample)

    def _remove(self, entry: Entry) -> None:
        if self.entries.get(entry.url) is entry:
            del self.entries[entry.url]
            self.on_remove(self, entry)

    def _later(self, change: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(SETTLED_SECONDS, lambda: None if self.dead else change())

    def _worker(self, url: str) -> Worker | None:
        netloc = urlsplit(url).netloc
        found = self.network.endpoints.get(netloc)
        is_there = isinstance(found, Worker) and urlsplit(url).hostname not in self.network.silent
        if self.network.reached_by_routers is not None and netloc not in self.network.reached_by_routers:
            return None
        return found if is_there and found.loaded else None  # type: ignore[return-value]

    def _route(self, sample: Sample) -> None:
        if self.dead:
            self._end(sample, None, 502)
            return
        usable = [entry for entry in self.entries.values() if entry.healthy]
        if not usable:
            self._without_workers(sample)
            return
        entry = min(usable, key=lambda one: one.in_flight)
        worker = self._worker(entry.url)
        sample.tries += 1
        if worker is None:
            if sample.tries >= MOST_TRIES:
                self._end(sample, None, 502)
                return
            entry.healthy = False
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._route, sample)
            return
        entry.in_flight += 1

        def done(sample: Sample, ok: bool) -> None:
            entry.in_flight -= 1
            if ok:
                entry.answered += 1
                self.counted[entry.url] = self.counted.get(entry.url, 0) + 1
                self._end(sample, None if self.dead else worker, 200)
            elif sample.tries >= MOST_TRIES:
                self._end(sample, None, 502)
            else:
                self._route(sample)

        worker.take(sample, done)

    def _without_workers(self, sample: Sample) -> None:
        if self.flavor == "smg":
            self.refusals += 1
            self._end(sample, None, 503)
            return
        self.waiting.append(sample)
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry, sample)

    def _retry(self, sample: Sample) -> None:
        if sample in self.waiting:
            self.retries += 1
            self.waiting.remove(sample)
            self._route(sample)

    def _end(self, sample: Sample, worker: Worker | None, status: int) -> None:
        self.connections -= 1
        sample.done(sample, worker, status)

    def _metrics(self) -> bytes:
        lines = [
            "# TYPE smg_http_connections_active gauge",
            f"smg_http_connections_active {self.connections}",
            "# TYPE smg_worker_retries_total counter",
            f"smg_worker_retries_total {self.retries}",
            "# TYPE smg_http_responses_total counter",
            f'smg_http_responses_total{{error_code="{NO_WORKER}"}} {self.refusals}',
        ]
        lines += [f'smg_worker_requests_active{{worker="{one.url}"}} {one.in_flight}' for one in self.entries.values()]
        lines += [
            f'smg_worker_cb_outcomes_total{{outcome="success",worker="{url}"}} {answered}'
            for url, answered in self.counted.items()
        ]
        return ("\n".join(lines) + "\n").encode()

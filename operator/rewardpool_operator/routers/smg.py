"""smg 1.13, sglang-router's successor, which takes all of its flags.

It refuses a request that has no worker at once, and the trainer asks again after a pause of `WAITING_PAUSE_SECONDS`. So
the refusals within a window, over how often one trainer's request is refused in it, are the requests that wait.
"""

import math
from collections import deque
from typing import Final

from rewardpool_api.contract import NO_WORKER_CODES, WAITING_PAUSE_SECONDS
from rewardpool_operator.routers.metrics import total
from rewardpool_operator.routers.program import RouterProgram

REFUSAL_WINDOW_SECONDS = 4.0  # longer than a trainer's longest pause, so that whoever waits was refused in it


class RefusedRequests:
    """The requests that wait for a worker of an smg, in the trainers that it refused; see `Waiting`."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def read(self, metrics: str, *, now: float) -> int | None:
        refusals = total(
            metrics, "smg_http_responses_total", of=lambda sample: sample.labels.get("error_code") in NO_WORKER_CODES
        )
        return None if refusals is None else self.update(refusals, now=now)

    def update(self, refusals: int, *, now: float) -> int | None:
        if self._readings and refusals < self._readings[-1][1]:
            # The router was restarted.
            self._readings.clear()
        if not self._readings and refusals == 0:
            # None since the router started is a window of its own.
            self._readings.append((-math.inf, 0))
        self._readings.append((now, refusals))
        while len(self._readings) > 1 and self._readings[1][0] <= now - REFUSAL_WINDOW_SECONDS:
            self._readings.popleft()
        since, before = self._readings[0]
        if since > now - REFUSAL_WINDOW_SECONDS:
            return None
        seconds = now - since if math.isfinite(since) else REFUSAL_WINDOW_SECONDS
        refusals_of_one = seconds / (sum(WAITING_PAUSE_SECONDS) / 2)
        return math.ceil((refusals - before) / refusals_of_one)


SMG: Final = RouterProgram(
    package="smg",
    requirement="smg==1.13.0",
    waiting=RefusedRequests,
    # It routes by `model`, so its list says which one a worker has. Given the program as well it asks the worker
    # nothing; otherwise it tries three times in 3 s, with a key it does not have. `sglang` stands for plain HTTP and
    # JSON.
    worker=lambda served_name: {"models": [{"id": served_name}], "runtime_type": "sglang"},
    # These turn off what it would do by itself: refuse at a limit of its own, ask workers for figures they do not have,
    # ask a hub for tokenizers.
    flags=(
        # Its default is 1024 requests per core, beyond which it queues a hundred and refuses the rest.
        *("--max-concurrent-requests", "0"),
        # Workers' own queues are no reason to leave one out: every worker of a burst has one.
        "--disable-worker-overload-protection",
        "--disable-load-monitoring",
        # It would look for one on the hub at each worker that joins, which an offline cluster waits for.
        "--disable-tokenizer-autoload",
        # A head that does not end holds up to 400 KiB until then; half a minute by default.
        *("--header-read-timeout-secs", "10"),
    ),
    settle_seconds=5.0,
)

"""One request to a router, sent once and waited for: what a caller sees who does nothing about a pool at zero.

Where the router gives up, after half a minute, it is sent again at once, as the project's client does.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final

DEADLINE_SECONDS: Final = 180.0
POLL_SECONDS: Final = 0.02
GIVEN_UP: Final = frozenset({502, 503, 504})
"""Statuses of a router that found no worker."""
AGAIN_SECONDS: Final = 0.1


class TooLateError(RuntimeError):
    """Something did not come true before its deadline."""


def body_of(model: str, text: str) -> bytes:
    """A request for a function's score."""
    sample = {"data_source": "", "solution_str": text, "ground_truth": "", "extra_info": {}}
    return json.dumps({"model": model, "input": json.dumps(sample)}).encode()


def ask(url: str, *, key: str, body: bytes) -> tuple[float, float]:
    """Seconds that a score took, and the score.

    Raises:
        OSError: no answer came before the deadline, or one that is none.
    """
    request = urllib.request.Request(
        f"{url}/v1/embeddings",
        data=body,
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    began = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
                data = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in GIVEN_UP or time.monotonic() - began > DEADLINE_SECONDS:
                raise
            time.sleep(AGAIN_SECONDS)
        else:
            return time.monotonic() - began, float(data["data"][0]["embedding"][0])


def until(
    holds: Callable[[], bool], *, what: str, seconds: float = DEADLINE_SECONDS, pause: float = POLL_SECONDS
) -> None:
    """Wait until that holds.

    Raises:
        TooLateError: it does not in time.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TooLateError(f"{what}: not within {seconds:g} s")
        time.sleep(pause)

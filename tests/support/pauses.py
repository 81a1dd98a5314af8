"""Pauses between the attempts of a client, as tests want them; each is a `call_later` of `Connections`."""

import asyncio
from collections.abc import Callable

FOR_EVER_SECONDS = 86_400.0


def no_pause(_seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
    """Goes on in the loop's next turn."""
    return asyncio.get_running_loop().call_later(0.0, then)


def short_pause(_seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
    """Goes on after the others had a turn: a hundred that fail at once would keep the loop busy."""
    return asyncio.get_running_loop().call_later(0.02, then)


def pauses_for_ever(_seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
    """Only an answer to what is in flight ends a request now."""
    return asyncio.get_running_loop().call_later(FOR_EVER_SECONDS, then)

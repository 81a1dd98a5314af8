"""Frames between a sandbox and its supervisor: four bytes of length, big-endian, then JSON in UTF-8.

JSON alone, so that a reader makes numbers, texts, lists and objects of what a hostile writer sent, and nothing else.
"""

import json
import os
import struct
from collections.abc import Callable
from typing import Any, Final

HEAD: Final = struct.Struct("!I")
MAX_BYTES: Final = 64 * 1024 * 1024


def packed(value: Any) -> bytes:
    """Return a value as a frame.

    Raises:
        ValueError: JSON cannot represent it (a number that is not finite, a circle), or it is too large.
        TypeError: It is an object of another type.
        RecursionError: It is nested too deeply.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    if len(text) > MAX_BYTES:
        raise ValueError(f"{len(text)} bytes; at most {MAX_BYTES} are possible")
    return HEAD.pack(len(text)) + text


def send(descriptor: int, value: Any) -> None:
    """Write a value to a blocking descriptor; raises as `packed`, and OSError."""
    write(descriptor, packed(value))


def write(descriptor: int, frame: bytes) -> None:
    """Write a whole frame to a blocking descriptor."""
    rest = memoryview(frame)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def receive(read: Callable[[int], bytes]) -> Any:
    """Return the next value of a stream.

    Args:
        read: Returns up to so many bytes, and none at the stream's end.

    Raises:
        EOFError: The other end is closed.
    """
    (length,) = HEAD.unpack(_exactly(read, HEAD.size))
    return json.loads(_exactly(read, length))


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = read(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError("the other end is closed")
        parts += part
    return bytes(parts)

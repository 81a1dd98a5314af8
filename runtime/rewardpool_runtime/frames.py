"""Frames between a process of somebody else's code and its supervisor: four bytes of length, big-endian, then JSON.

JSON alone, so that a reader makes numbers, texts, lists and objects of what a hostile writer sent, and nothing else.
"""

import json
import os
import struct
from collections.abc import Callable
from typing import Any, Final

HEAD: Final = struct.Struct("!I")
MAX_BYTES: Final = 64 * 1024 * 1024
# Taken now: code that runs in a process with this module may replace `json.dumps`.
_encode: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_decode: Final = json.JSONDecoder().decode


def packed(value: Any) -> bytes:
    """Return a value as a frame.

    Raises:
        ValueError: JSON cannot represent it (a number that is not finite, a circle), or it is too large.
        TypeError: It is an object of another type.
        RecursionError: It is nested too deeply.
    """
    text = _encode(value).encode()
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
    return _decode(_exactly(read, length).decode())


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = read(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError("the other end is closed")
        parts += part
    return bytes(parts)


class Incoming:
    """The frames in what has arrived so far of a stream that is read without waiting."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, part: bytes) -> list[Any]:
        """Return the values that are whole with this part.

        Raises:
            ValueError: It is no frame, or a larger one than any that `packed` makes.
        """
        self._bytes += part
        found = []
        while len(self._bytes) >= HEAD.size:
            (length,) = HEAD.unpack_from(self._bytes)
            if length > MAX_BYTES:
                raise ValueError(f"a frame of {length} bytes")
            if len(self._bytes) < HEAD.size + length:
                break
            found.append(_decode(self._bytes[HEAD.size : HEAD.size + length].decode()))
            del self._bytes[: HEAD.size + length]
        return found

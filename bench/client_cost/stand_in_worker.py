"""StandInWorker: a worker that costs next to nothing; a text's score is its length in characters.

python stand_in_worker.py --port 18000

It answers any POST as the score contract says, after a fixed service time that `PUT /service-ms/20` sets. Any number of
requests wait at the same time, and the samples of one request wait together, as on a GPU with room for all. HTTP is
read by hand, for a server library would cost more than the client that is measured: requests need a Content-Length, and
come one after the other on a connection. It runs with the interpreter of the routers, which has uvloop and orjson.
"""

import argparse
import asyncio
import re
from typing import Any

import orjson
import uvloop

HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
REQUEST_ID = re.compile(rb"\r\nx-correlation-id: *([^\r]+)", re.IGNORECASE)
SIGNATURE = {"revision": "0123456789", "tokenizer": "0123456789abcdef"}
"""Said in every answer, as a worker of RewardPool says it."""
SERVICE_PATH = b"/service-ms/"
MAX_REQUEST_BYTES = 4 << 20

service_seconds = 0.0


class Connection(asyncio.Protocol):
    """One connection: whole requests out of what arrives, an answer for each."""

    def __init__(self) -> None:
        self._arrived = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        """Called by asyncio."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._arrived += data
        head_length = self._arrived.find(HEAD_END)
        if head_length < 0:
            return
        head = self._arrived[:head_length]
        found = LENGTH.search(head)
        end = head_length + len(HEAD_END) + (int(found[1]) if found else 0)
        if end > MAX_REQUEST_BYTES or not head.startswith((b"GET ", b"POST ", b"PUT ")):
            # The router tries gRPC on every worker.
            self._transport.close()
            return
        if len(self._arrived) < end:
            return
        body = self._arrived[head_length + len(HEAD_END) : end]
        self._arrived = self._arrived[end:]
        self._take(head, body)

    def _take(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"POST "):
            found = REQUEST_ID.search(head)
            answer = _answer(_scores(orjson.loads(body)["input"]), found and found[1].decode())
            if service_seconds:
                asyncio.get_running_loop().call_later(service_seconds, self._send, answer)
                return
            self._send(answer)
            return
        path = head.split(b" ", 2)[1]
        if path.startswith(SERVICE_PATH):
            _set_service(float(path.removeprefix(SERVICE_PATH)))
        self._send(_response(b"{}"))

    def _send(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer)


def _set_service(milliseconds: float) -> None:
    global service_seconds
    service_seconds = milliseconds / 1000


def _scores(given: Any) -> list[int]:
    """The lengths of a text, of token ids, or of several of either."""
    if isinstance(given, str) or isinstance(given[0], int):
        return [len(given)]
    return [len(one) for one in given]


def _answer(scores: list[int], request_id: str | None) -> bytes:
    data = [{"index": index, "embedding": [float(score)]} for index, score in enumerate(scores)]
    return _response(orjson.dumps({"request_id": request_id, **SIGNATURE, "data": data}))


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="A worker whose scores cost nothing.")
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())

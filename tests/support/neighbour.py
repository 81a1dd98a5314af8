"""Another user of the machine, who wants a pool's keys and to give its scores: `python neighbour.py NEEDLE FILE`.

It takes each port that an argument `--port` or `--prometheus-port` of a process names whose arguments have the needle
in them (a space is between two), as soon as it can be had, and answers whatever is asked there: ready, idle, a score of
-1000. The file gets a JSON line for each request. What it needs is imported before it becomes the other user, who may
not read the checkout.
"""

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.skips import ONE_USER

NOBODY = 65534
SCORE = -1000.0
ANSWER = {
    "status": "ready",
    "probe_score": SCORE,
    "in_flight": 0,
    "object": "list",
    "workers": [],
    "data": [{"object": "embedding", "index": 0, "embedding": [SCORE]}],
}
PORT = re.compile(rb"--(?:prometheus-)?port\0(\d+)\0")


needs_two_users = pytest.mark.skipif(os.geteuid() != 0, reason=ONE_USER)


@contextmanager
def neighbour(needle: str, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One who attacks the processes with the needle in their arguments; its file is there when it has begun."""
    file.touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "support.neighbour", needle, str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def noted(file: Path) -> list[dict[str, Any]]:
    """What it wrote down: the ports that it won, and the requests that came."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def _main(needle: bytes, file: Path) -> None:
    log = file.open("a", buffering=1)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    print("ready", flush=True)

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            said = {"asked": self.path, "key": self.headers.get("Authorization"), "body": body.decode(errors="replace")}
            log.write(json.dumps(said) + "\n")
            text = json.dumps(ANSWER).encode()
            self.send_response(202 if self.command == "POST" and self.path == "/workers" else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - what the standard library calls

        def log_message(self, *_: Any) -> None:
            pass

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    won: set[int] = set()
    while True:
        for port in _ports(needle) - won:
            try:
                server = Server(("127.0.0.1", port), Answering)
            except OSError:
                continue
            won.add(port)
            log.write(json.dumps({"won": port}) + "\n")
            threading.Thread(target=server.serve_forever, daemon=True).start()
        time.sleep(0.01)


def _ports(needle: bytes) -> set[int]:
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != os.getpid():
            try:
                arguments = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if needle in arguments:
                found.update(map(int, PORT.findall(arguments)))
    return found


if __name__ == "__main__":
    _main(sys.argv[1].replace(" ", "\0").encode(), Path(sys.argv[2]))

"""FakeHub: what a client asks of the Hugging Face hub to download a model, on a loopback port.

It answers as the hub does: a listing of a commit with digests, files by ranges, and refusals in the hub's own headers.
No real hub can be reached from a test, and none would break off, corrupt and throttle on demand.
"""

import contextlib
import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

LFS_BYTES = 1000
"""Files of this size or more are kept as large ones, with a SHA-256."""


@dataclass
class FakeRepo:
    """A model: what its branch is, and the files of each commit."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    main: str = ""

    def push(self, files: dict[str, bytes]) -> str:
        """A new commit on `main`."""
        self.main = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[self.main] = files
        return self.main


class FakeHub:
    """A context manager; `HF_ENDPOINT` is its `url`."""

    def __init__(self) -> None:
        self.repos: dict[str, FakeRepo] = {}
        self.token: str | None = None
        """Files need this token, when set: a gated model."""
        self.throttled = 0
        """So many of the next requests for a file are answered 429."""
        self.corrupted = 0
        """So many of the next answers with a file have a wrong byte."""
        self.hold_after: int | None = None
        """A file is held back after so many bytes until `release` is set."""
        self.release = threading.Event()
        self.away = False
        """Everything is answered 503."""
        self.asked: list[tuple[str, str]] = []
        """Path and range of every request for a file."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub._answer(self)

            def do_HEAD(self) -> None:
                hub._answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def model(self, name: str, files: dict[str, bytes]) -> FakeRepo:
        """A model with one commit."""
        repo = self.repos[name] = FakeRepo()
        repo.push(files)
        return repo

    def downloads(self, file: str) -> int:
        """How often the file was asked for."""
        return sum(path.endswith(f"/{file}") for path, _ in self.asked)

    def _answer(self, request: Any) -> None:
        parts = [unquote(part) for part in urlsplit(request.path).path.strip("/").split("/")]
        if self.away:
            return _send(request, 503, b"")
        if parts[:2] == ["api", "models"]:
            return self._listing(request, "/".join(parts[2:4]), parts[5])
        if parts[2:3] != ["resolve"]:
            return _send(request, 404, b"")
        return self._file(request, "/".join(parts[:2]), parts[3], "/".join(parts[4:]))

    def _listing(self, request: Any, name: str, revision: str) -> None:
        repo = self.repos.get(name)
        if repo is None:
            return _send(request, 401, b"", {"X-Error-Code": "RepoNotFound"})
        commit = repo.main if revision == "main" else revision
        if commit not in repo.commits:
            return _send(request, 404, b"", {"X-Error-Code": "RevisionNotFound"})
        siblings = [_sibling(path, content) for path, content in repo.commits[commit].items()]
        return _send(request, 200, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode())

    def _file(self, request: Any, name: str, commit: str, path: str) -> None:
        repo = self.repos.get(name)
        if repo is None:
            return _send(request, 401, b"", {"X-Error-Code": "RepoNotFound"})
        commit = repo.main if commit == "main" else commit
        if commit not in repo.commits:
            return _send(request, 404, b"", {"X-Error-Code": "RevisionNotFound"})
        if path not in repo.commits[commit]:
            return _send(request, 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        content = repo.commits[commit][path]
        wanted = request.headers.get("Range", "")
        with self._lock:
            self.asked.append((request.path, wanted))
            throttled, self.throttled = self.throttled > 0, max(0, self.throttled - 1)
            corrupted, self.corrupted = self.corrupted > 0, max(0, self.corrupted - 1)
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _send(request, 401, b"", {"X-Error-Code": "GatedRepo"})
        if throttled:
            return _send(request, 429, b"", {"Retry-After": "0"})
        offset = int(wanted.removeprefix("bytes=").rstrip("-") or 0) if wanted else 0
        body = content[offset:]
        if corrupted:
            body = bytes([body[0] ^ 1]) + body[1:]
        headers = {"Content-Range": f"bytes {offset}-{len(content) - 1}/{len(content)}"} if wanted else {}
        headers |= {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        hold = self.hold_after if self.hold_after is not None and self.hold_after < len(body) else None
        return _send(request, 206 if wanted else 200, body, headers, hold_after=hold, release=self.release)


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    large = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    kept = {"lfs": large} if len(content) >= LFS_BYTES else {}
    return {"rfilename": path, "size": len(content), "blobId": blob, **kept}


def _send(
    request: Any,
    status: int,
    body: bytes,
    headers: dict[str, str] | None = None,
    *,
    hold_after: int | None = None,
    release: threading.Event | None = None,
) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
    if request.command == "HEAD":
        return
    with contextlib.suppress(ConnectionError):  # the test ended the one who asked
        if hold_after is not None and release is not None:
            request.wfile.write(body[:hold_after])
            release.wait(60)
            body = body[hold_after:]
        request.wfile.write(body)

"""A host of git repositories, `git http-backend` behind Python's server: `python git_host.py FOLDER ADDRESS PORT`.

With --certificate and --key it serves HTTPS.
"""

import argparse
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_HEADERS = {
    "CONTENT_TYPE": "Content-Type",
    "HTTP_CONTENT_ENCODING": "Content-Encoding",
    "HTTP_GIT_PROTOCOL": "Git-Protocol",
}


class GitHost(ThreadingHTTPServer):
    """Serves the repositories of a folder."""

    daemon_threads = True

    def __init__(self, folder: Path, address: str, port: int) -> None:
        super().__init__((address, port), _Handler)
        self.folder = folder
        self.authorization: str | None = None
        """The header that a request must have; None: none."""
        self.location: str | None = None
        """Where every request is sent; None: nowhere."""
        self.silent = threading.Event()
        """Set: no request is answered."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @contextmanager
    def serving(self) -> Iterator["GitHost"]:
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: GitHost

    def do_GET(self) -> None:
        host = self.server
        if host.silent.is_set():
            self.rfile.read()
        elif host.authorization not in (None, self.headers["Authorization"]):
            self._answer(401, {"WWW-Authenticate": "Basic realm=git"})
        elif host.location is not None:
            self._answer(302, {"Location": host.location})
        else:
            self._git()

    do_POST = do_GET  # noqa: N815 - a method's name

    def _git(self) -> None:
        url = urlsplit(self.path)
        variables = {
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            # The files may be another user's.
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "REQUEST_METHOD": self.command,
            **{variable: self.headers[name] for variable, name in _HEADERS.items() if name in self.headers},
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(
            ["git", "http-backend"], input=body, capture_output=True, env=os.environ | variables, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._answer(int(headers.pop("Status", "200").split()[0]), headers, content)

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    asked = parser.parse_args()
    host = GitHost(asked.folder, asked.address, asked.port)
    if asked.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(asked.certificate, asked.key)
        host.socket = context.wrap_socket(host.socket, server_side=True)
    host.serve_forever()


if __name__ == "__main__":
    main()

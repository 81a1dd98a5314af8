"""A function that tries what it should not reach, or what it should: the sample names it."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any


def _moved() -> str:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("from", "to"):
            Path(folder, name).mkdir()
        Path(folder, "from", "file").write_text("moved")
        os.rename(f"{folder}/from/file", f"{folder}/to/file")
        return shutil.move(f"{folder}/to/file", f"{folder}/file") and Path(folder, "file").read_text()


def _read(path: object) -> int:
    return len(Path(str(path)).read_bytes())


def _scratch(name: str) -> str:
    return os.path.join(tempfile.mkdtemp(), name)


def _neighbour() -> int:
    """Another process of this function."""
    parent = os.getppid()
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return next(pid for pid in map(int, children) if pid != os.getpid())


def _server() -> int:
    """The parent of the function's parent."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


ATTEMPTS = {
    "the key": lambda key, server: _read(key),
    "the key, by another path": lambda key, server: _read(f"/proc/self/root{key}"),
    "the key, through the server": lambda key, server: _read(f"/proc/{server}/root{key}"),
    "the key, by a program": lambda key, server: subprocess.run(["cat", key], check=True),
    "the key, as a link": lambda key, server: _read(os.link(key, at := _scratch("key")) or at),
    "the key, moved": lambda key, server: _read(os.rename(key, at := _scratch("key")) or at),
    "the key's folder, moved": lambda key, server: os.rename(os.path.dirname(key), _scratch("keys")),
    "another key in its place": lambda key, server: Path(key).write_text("mine"),
    "an end of the key": lambda key, server: os.truncate(key, 0),
    "a removal of the key": lambda key, server: os.unlink(key),
    "a file beside the key": lambda key, server: Path(os.path.dirname(key), "mine").write_text("x"),
    "the server's environment": lambda key, server: _read(f"/proc/{server}/environ"),
    "the server's memory": lambda key, server: os.open(f"/proc/{server}/mem", os.O_RDONLY),
    "the server's descriptors": lambda key, server: os.open(f"/proc/{server}/fd/0", os.O_RDONLY),
    "its parent's memory": lambda key, server: os.open(f"/proc/{os.getppid()}/mem", os.O_RDWR),
    "a neighbour's environment": lambda key, server: _read(f"/proc/{_neighbour()}/environ"),
    "a neighbour's memory": lambda key, server: os.open(f"/proc/{_neighbour()}/mem", os.O_RDWR),
    "a signal to the server": lambda key, server: os.kill(server, 0),
    "a signal to its parent": lambda key, server: os.kill(os.getppid(), 0),
    "a signal to a neighbour": lambda key, server: os.kill(_neighbour(), 0),
}
NETWORK = {
    "TCP": lambda key, server: socket.socket(),
    "UDP": lambda key, server: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "a Unix socket": lambda key, server: socket.socket(socket.AF_UNIX),
    "a socket of a program's": lambda key, server: subprocess.run(
        ["python3", "-c", "import socket; socket.socket()"], check=True
    ),
}
NEEDED = {
    "temporary files": lambda key, server: _moved(),
    "programs": lambda key, server: subprocess.run(["true"], check=True),
    "an end of a program of its own": lambda key, server: subprocess.Popen(["sleep", "60"]).terminate(),
    "the list of files": lambda key, server: os.listdir("/"),
    "a pair of sockets": lambda key, server: socket.socketpair(),
    "its own environment": lambda key, server: _read("/proc/self/environ"),
}


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None) -> float:
    """Do what the sample names; 1 where it succeeds."""
    (ATTEMPTS | NETWORK | NEEDED)[solution_str](ground_truth, _server())
    return 1.0

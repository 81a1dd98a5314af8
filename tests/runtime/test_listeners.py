"""Who listens at a port, and ports that other users cannot have."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.neighbour import NOBODY, needs_two_users

from rewardpool_runtime.listeners import (
    ForeignListenerError,
    HeldPort,
    Listener,
    check_listener,
    check_listens,
    in_tables,
    listeners,
)

LISTEN = """
import os, socket, sys
uid, port, *options = map(int, sys.argv[1:])
os.setgroups([]) if uid else None
os.setuid(uid)
made = socket.socket()
for option in options:
    made.setsockopt(socket.SOL_SOCKET, option, 1)
try:
    made.bind(("127.0.0.1", port))
    made.listen()
except OSError as error:
    sys.exit(error.strerror)
print("listens", flush=True)
sys.stdin.read()
"""


class Listening:
    """A process of a user that listens at a port, or could not."""

    def __init__(self, uid: int, port: int, *options: int) -> None:
        arguments = [sys.executable, "-c", LISTEN, *map(str, (uid, port, *options))]
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.got_it = self._process.stdout.readline() == b"listens\n"
        self.pid = self._process.pid

    def __enter__(self) -> "Listening":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_kernel_says_who_listens(host: str) -> None:
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
        inode = os.fstat(server.fileno()).st_ino
        assert listeners("127.0.0.1", port) == (Listener(os.getuid(), inode),)
        assert (listeners("127.0.0.2", port) == ()) is (host == "127.0.0.1")
        (found,) = in_tables(port, [Path("/proc/net/tcp").read_text()])
        assert found[1] == Listener(os.getuid(), inode)


def test_a_listener_of_all_addresses_of_ipv6_counts() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        assert len(listeners("127.0.0.1", port)) == 1
        assert len(list(in_tables(port, [Path("/proc/net/tcp6").read_text()]))) == 1


def test_another_process_of_the_same_user_is_not_the_one_that_was_started() -> None:
    port = HeldPort()
    port.lend()
    with Listening(os.getuid(), port.number, socket.SO_REUSEADDR) as one:
        known: set[int] = set()
        assert check_listens(one.pid, port.number, known=known)
        assert check_listens(one.pid, port.number, known=known)
        check_listener("localhost", port.number)
        with subprocess.Popen(["sleep", "60"]) as other:
            with pytest.raises(ForeignListenerError, match="another process"):
                check_listens(other.pid, port.number, known=set())
            other.kill()
    assert not check_listens(one.pid, port.number, known=known)
    port.release()


def test_a_held_port_refuses_connections_and_may_be_had_again_after_a_server() -> None:
    port = HeldPort()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.number))
    for _ in range(2):
        port.lend()
        with Listening(os.getuid(), port.number, socket.SO_REUSEADDR) as one:
            assert one.got_it
            port.reclaim()
            socket.create_connection(("127.0.0.1", port.number)).close()
    port.release()
    HeldPort(port.number).release()


def test_a_port_at_which_something_listens_cannot_be_held() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(OSError, match="in use"):
        HeldPort(server.getsockname()[1])


@needs_two_users
@pytest.mark.parametrize("options", [(), (socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)])
def test_another_user_cannot_have_a_held_port_also_after_its_program_ended(options: tuple[int, ...]) -> None:
    port = HeldPort()
    with Listening(NOBODY, port.number, *options) as other:
        assert not other.got_it
    with Listening(os.getuid(), port.number, socket.SO_REUSEPORT) as own:
        assert own.got_it
        with Listening(NOBODY, port.number, *options) as other:
            assert not other.got_it
    port.lend()
    with Listening(os.getuid(), port.number, socket.SO_REUSEADDR) as own:
        port.reclaim()
    with Listening(NOBODY, port.number, *options) as other:
        assert not other.got_it
    port.release()


@needs_two_users
def test_another_user_who_took_a_lent_port_is_found_out() -> None:
    port = HeldPort()
    port.lend()
    with Listening(NOBODY, port.number, socket.SO_REUSEADDR) as other:
        assert other.got_it
        with pytest.raises(ForeignListenerError, match=f"user {NOBODY}"):
            check_listener("127.0.0.1", port.number)
        with pytest.raises(ForeignListenerError, match=f"user {NOBODY}"):
            check_listens(other.pid, port.number, known=set())
    port.release()

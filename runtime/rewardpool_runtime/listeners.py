"""Owner of the listener at a port of this machine, checked before a secret or a sample is sent there.

A port is nobody's: where a program is to listen, any user's may, and it would be given the pool's key and its samples.
The kernel says who does: user and inode of each listening socket (sock_diag; where that is not to be had, /proc/net),
and in /proc/PID/fd the inodes of a process. A port is also held, which keeps other users from it: see `HeldPort`.
"""

import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final, NamedTuple

from rewardpool_runtime.process_stat import family

HOST: Final = "127.0.0.1"
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING: Final = re.compile(
    r"^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) [0-9A-F]+:0000 0A \S+ \S+ \S+ +(\d+) +\d+ (\d+) ", re.MULTILINE
)
# Of <linux/netlink.h>, <linux/sock_diag.h> and <linux/inet_diag.h>.
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_DUMP: Final = 0x301
_ERROR, _DONE = 2, 3
_LISTEN_STATE: Final = 10
_HEAD: Final = struct.Struct("=IHHII")
_ANY_COOKIE: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)


class ForeignListenerError(ConnectionError):
    """The listener is another user's, or unknown; the text names it and its address."""


class Listener(NamedTuple):
    """One listening socket.

    Attributes:
        uid: Id of the user whose it is.
        inode: Its number, as /proc/PID/fd has it.
    """

    uid: int
    inode: int


def listeners(host: str, port: int) -> tuple[Listener, ...]:
    """Return all sockets that a connection to that address may reach, also those of every address.

    Args:
        host: An address in digits.

    Raises:
        OSError: The kernel does not say.
    """
    wanted = ip_address(host)
    try:
        found = [*_dumped(socket.AF_INET, port), *_dumped(socket.AF_INET6, port)]
    except OSError:  # a container may refuse netlink; the tables take milliseconds
        found = list(in_tables(port, [table.read_text() for table in _TABLES if table.exists()]))
        if not _TABLES[0].exists():
            raise
    return tuple(one for address, one in found if _takes(address, wanted))


def check_listener(host: str, port: int, *, uid: int | None = None) -> None:
    """See that who listens is this user or root.

    Args:
        host: An address in digits, or `localhost`.
        uid: Of the user; by default that of this process.

    Raises:
        ForeignListenerError: It is another user, or that cannot be known. Where nobody listens is no error: whoever
            connects is refused.
    """
    mine = os.getuid() if uid is None else uid
    for one in _listeners_at(host, port):
        if one.uid not in (mine, 0):
            raise ForeignListenerError(
                f"at {host}:{port} listens a process of user {one.uid}, not of user {mine}: nothing is sent to it"
            )


def check_listens(pid: int, port: int, *, known: set[int]) -> bool:
    """Return whether a process listens at a port of 127.0.0.1, or one that it started; false where nobody does.

    Args:
        known: Inodes that are its own, to which what is found is added.

    Raises:
        ForeignListenerError: Somebody else listens there, or that cannot be known.
    """
    found = _listeners_at(HOST, port)
    foreign = [one for one in found if one.inode not in known]
    if foreign:
        known |= _sockets_of(pid)
    for one in foreign:
        if one.uid != os.getuid() or one.inode not in known:
            raise ForeignListenerError(
                f"at {HOST}:{port} listens another process, of user {one.uid}: nothing is sent to it"
            )
    return bool(found)


class HeldPort:
    """A port of 127.0.0.1 that is this user's for as long as it is held, whether or not a program listens there.

    It is bound and does not listen, so connections are refused until a program listens, and nobody else's can. A
    program binds it with SO_REUSEPORT, which the kernel grants to processes of one user alone. Or, as nearly all
    servers do, with SO_REUSEADDR, while it is lent. A program of any user may bind it meanwhile: see who listens, and
    take it back then. From there on nobody else can have it, also when the program has ended.
    """

    def __init__(self, port: int = 0) -> None:
        """Hold a port, by default a free one. Raises OSError: something listens there."""
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            # As servers do it: a connection that lingers from before does not count.
            self.lend()
            self._socket.bind((HOST, port))
            self.reclaim()
        except BaseException:
            self._socket.close()
            raise
        self.number = int(self._socket.getsockname()[1])

    def lend(self) -> None:
        """Let a program bind it that sets SO_REUSEADDR."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def reclaim(self) -> None:
        """Let no further program listen there, unless by SO_REUSEPORT; one that listens goes on."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)

    def release(self) -> None:
        self._socket.close()


def _listeners_at(host: str, port: int) -> tuple[Listener, ...]:
    try:
        return listeners(HOST if host == "localhost" else host, port)
    except (OSError, ValueError) as error:
        raise ForeignListenerError(f"who listens at {host}:{port} cannot be known: {error}") from None


def _dumped(kind: socket.AddressFamily, port: int) -> Iterator[tuple[IPv4Address | IPv6Address, Listener]]:
    """Return the kernel's list of listening sockets, in 30 µs."""
    wanted = struct.pack("=BBBBI", kind, socket.IPPROTO_TCP, 0, 0, 1 << _LISTEN_STATE)
    wanted += struct.pack("!HH", port, 0) + bytes(32) + _ANY_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asking:
        asking.send(_HEAD.pack(_HEAD.size + len(wanted), _BY_FAMILY, _DUMP, 1, 0) + wanted)
        while True:
            answer, at = asking.recv(1 << 16), 0
            while at < len(answer):
                size, what, *_ = _HEAD.unpack_from(answer, at)
                if what == _DONE:
                    return
                if what == _ERROR:
                    raise OSError(-struct.unpack_from("=i", answer, at + 16)[0], "sock_diag")
                local = answer[at + 24 : at + 40]
                uid, inode = struct.unpack_from("=II", answer, at + 80)
                yield IPv4Address(local[:4]) if kind == socket.AF_INET else IPv6Address(local), Listener(uid, inode)
                at += (size + 3) & ~3


def in_tables(port: int, tables: Iterable[str]) -> Iterator[tuple[IPv4Address | IPv6Address, Listener]]:
    """Return the sockets that listen at a port of any address, and where, as the texts of /proc/net/tcp have them."""
    for table in tables:
        for local, at, uid, inode in _LISTENING.findall(table):
            if int(at, 16) == port:
                yield _address(local), Listener(int(uid), int(inode))


def _address(digits: str) -> IPv4Address | IPv6Address:
    """Return an address as the kernel prints it: words of four bytes, each in the machine's order."""
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    return IPv4Address(words[0]) if len(words) == 1 else IPv6Address(b"".join(words))


def _takes(listening: IPv4Address | IPv6Address, wanted: IPv4Address | IPv6Address) -> bool:
    if isinstance(listening, IPv6Address) and listening.ipv4_mapped is not None:
        listening = listening.ipv4_mapped
    # Every address of IPv6 may be every one of IPv4 too: the table does not say.
    return listening == wanted or listening.is_unspecified


def _sockets_of(pid: int) -> set[int]:
    found = set()
    for one in family(pid):
        folder = f"/proc/{one}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"{folder}/{name}")
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found

"""Rights that a reward function's process gives up: the pool's key, other processes, and on request the network.

The function is trusted code, which may be clumsy, and may run a policy's. It keeps files, processes and threads, but
what is beneath one folder and on the way to it: Landlock has no rule that refuses, so all that is beside is allowed.
"""

import contextlib
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rewardpool_runtime.guard import kernel, syscalls, view

# They tell nothing of a file's content: names of files are no secret.
_LEFT_ALONE: Final = kernel.EXECUTE | kernel.READ_DIR | kernel.IOCTL_DEVICE


_KEPT_CAPABILITIES: Final = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
"""Capabilities of root: to own and change files, to signal, to be another user, to listen on low ports.

TRAP: by CAP_PERFMON, /proc shows another process's environment in spite of Landlock.
"""
# Without it root is not root in a user namespace of its own, which each call and each policy's program then has.
_SETFCAP: Final = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """Boundary around a function's processes.

    Attributes:
        key_file: The file that they may not read; empty where there is none.
        hidden: The folder that it is in, or one above: nothing beneath can be read or changed.
        shown: Paths beneath it that can be, such as the function's code.
        network: Whether they may make sockets.
    """

    key_file: str = ""
    hidden: str = ""
    shown: Sequence[str] = ()
    network: bool = True

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> "Boundary":
        return cls(**value)

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)


def enter(boundary: Boundary) -> None:
    """Give up what the boundary is for, for good, in this process of one thread and all that it starts."""
    # What the machine lacks is left out: `attempts` finds what that leaves open.
    if kernel.has_landlock():
        rights = kernel.file_rights() & ~_LEFT_ALONE
        with contextlib.suppress(kernel.GuardError), kernel.Ruleset(files=rights, scopes=kernel.SCOPE_SIGNALS) as rules:
            for path in _beside(boundary.hidden, boundary.shown):
                with contextlib.suppress(OSError):  # it is gone by now, or not on a file system
                    rules.allow(path, rights)
            rules.restrict_self()
    elif boundary.hidden:
        with contextlib.suppress(kernel.GuardError):
            view.hide(os.path.realpath(boundary.hidden), _shown(boundary.hidden, boundary.shown))
    _keep_capabilities()
    if not boundary.network and platform.machine() in syscalls.MACHINES:
        with contextlib.suppress(kernel.GuardError):
            kernel.filter_calls(syscalls.filter_without_network(platform.machine()))


def part() -> None:
    """Part this process from those that its parent forks beside it: it reads none of them any more."""
    if kernel.has_landlock():
        # A ruleset handles at least something; whatever it handles, moves between folders are refused unless allowed.
        with (
            contextlib.suppress(kernel.GuardError),
            # Where Landlock is new enough, it signals none of them either.
            kernel.Ruleset(files=kernel.REFER, scopes=kernel.SCOPE_SIGNALS) as rules,
        ):
            rules.allow("/", kernel.REFER)
            rules.restrict_self()
    else:
        with contextlib.suppress(kernel.GuardError):
            view.part()
        _keep_capabilities()


def _keep_capabilities() -> None:
    """Keep some of root's. Who has none outside gets all of them in a user namespace, and keeps none there."""
    kept = _KEPT_CAPABILITIES if kernel.has_landlock() else _KEPT_CAPABILITIES | _SETFCAP
    with contextlib.suppress(kernel.GuardError):
        kernel.keep_capabilities(kept if os.geteuid() == 0 else 0)


def _beside(hidden: str, shown: Sequence[str]) -> Iterator[str]:
    """Yield what is beside a folder and beside each one above it, and what is shown of the folder itself."""
    if not hidden:
        yield "/"
        return
    above, hidden = "/", os.path.realpath(hidden)
    for name in hidden.strip("/").split("/"):
        for other in _entries(above):
            # No links: what they lead to is on this list by its own name, or is hidden.
            if other != name and not os.path.islink(path := os.path.join(above, other)):
                yield path
        above = os.path.join(above, name)
    yield from _shown(hidden, shown)


def _shown(hidden: str, shown: Sequence[str]) -> list[str]:
    beneath = f"{os.path.realpath(hidden)}/"
    return [path for path in map(os.path.realpath, shown) if path.startswith(beneath)]


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # it may not be listed, and what it has is not readable then
        return []

"""Starts a router with its keys read from files: `python router_launcher.py ROUTER-FLAGS…`.

The router's own command line takes both keys as arguments, where every process of the machine can read them. Its Python
entry point takes them as values, so this one file (the standard library and the router's package, nothing of the
project) is mounted into router pods and run on one machine. All flags in argv are the router's own and go to it
unchanged.

REWARDPOOL_ROUTER_PACKAGE says which router, by its Python package, whose module `launch_router` starts it (not by its
script: two routers call theirs `smg`). Two more environment variables name the files, each with one key in it:

- REWARDPOOL_KEY_FILE: the key of the data plane. The router forwards the caller's, so workers have the same one.
- REWARDPOOL_ADMIN_KEY_FILE: the key of the worker list (`/workers`), which trainers never get.

REWARDPOOL_MEMORY_BYTES, the container's limit, bounds the open files, see `limit_open_files`.
"""

import importlib
import os
import resource
import sys
from pathlib import Path

FILES_PER_REQUEST = 2
FILES_FOR_OTHERS = 64
LEAST_FILES = 1024
HEAD_BYTES = 400 << 10  # of a connection; sglang-router waits for the end of a head without a deadline
OWN_BYTES = 640 << 20  # the program and its tree of prefixes, when the tree is full
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
KEY_FLAGS = ("--api-key", "--control-plane-api-keys", "--tenant-api-key")


def main(argv: list[str]) -> int:
    """Run the router until it is told to stop; returns the exit code."""
    # argparse takes beginnings of flags as well.
    names = [flag.split("=")[0] for flag in argv]
    refused = [name for name in names if len(name) > 2 and any(flag.startswith(name) for flag in KEY_FLAGS)]
    if refused:
        print(f"{refused[0]} is not taken here: put the key into a file, see --help of this file", file=sys.stderr)
        return 2
    package = os.environ.get("REWARDPOOL_ROUTER_PACKAGE", "sglang_router")
    try:
        key = read_key("REWARDPOOL_KEY_FILE")
        admin_key = read_key("REWARDPOOL_ADMIN_KEY_FILE")
        # After the keys, so that a missing one is said before a native library of 90 MB is loaded.
        program = importlib.import_module(f"{package}.launch_router")
    except (OSError, ValueError) as error:
        print(f"the router is not started: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"REWARDPOOL_ROUTER_PACKAGE {package} cannot be started here: {error!r}", file=sys.stderr)
        return 2
    limit_open_files(os.environ.get("REWARDPOOL_MEMORY_BYTES"))
    drop_proxies()
    arguments = program.parse_router_args(argv)
    arguments.api_key = key
    if admin_key is not None:
        # (id, name, key, role): the role admin may change the worker list.
        arguments.control_plane_api_keys = [("rewardpool", "rewardpool", admin_key, "admin")]
    program.launch_router(arguments)
    return 0


def read_key(variable: str) -> str | None:
    """The key in the file that the environment variable names; None where the variable is not set.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is empty, which would open the router to everybody.
    """
    path = os.environ.get(variable)
    if not path:
        return None
    key = Path(path).read_text().strip()
    if not key:
        raise ValueError(f"{variable} {path} is empty")
    return key


def drop_proxies() -> None:
    """Remove the variables that name a proxy."""
    # By way of a proxy a router would not reach its workers, or would show samples and key to it.
    for name in [name for name in os.environ if name.lower() in PROXY_VARIABLES]:
        del os.environ[name]


def limit_open_files(memory: str | None) -> None:
    """Raise the soft limit on open files to the hard one, or to what fits the memory where that is less."""
    # A request in flight takes two descriptors; under the usual 1024, 512 requests at once lose some and 4096 lose all.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = hard
    if memory and memory.isdecimal():
        # Whoever reaches the port, without a key, may fill as many heads as there are descriptors: the router refuses
        # further connections then, where it would be killed for its memory.
        fitting = max(LEAST_FILES, FILES_FOR_OTHERS + (int(memory) - OWN_BYTES) // HEAD_BYTES)
        files = fitting if hard == resource.RLIM_INFINITY else min(hard, fitting)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    if files != resource.RLIM_INFINITY:
        room = max(0, files - FILES_FOR_OTHERS) // FILES_PER_REQUEST
        print(f"open files of this router: {files}, which is room for {room} requests in flight", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

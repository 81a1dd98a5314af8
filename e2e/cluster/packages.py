"""The system packages that environments, tests, nodes and images need, installed with apt where they are missing.

    python3 -m cluster.packages tests     # installs what is missing, or fails with the line to type

The targets of the Makefile call it before there is any virtual environment, so it needs the standard library alone.
"""

import argparse
import ctypes
import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from cluster.processes import ClusterError, output_of
from cluster.progress import Say, timed_lines

CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
"""Where Debian, and where everybody else, puts the CNI plugins."""

NODE_PACKAGES: Mapping[str, str] = {
    "containerd": "containerd",
    "runc": "runc",
    "ptp": "containernetworking-plugins",
    "iptables": "iptables",
    "ip": "iproute2",
    "conntrack": "conntrack",
    "ethtool": "ethtool",
    "openssl": "openssl",
    "gcc": "gcc libc6-dev",
    "buildah": "buildah",
    "nsenter": "util-linux",
}
"""Program, shared library or `import` of Python -> the Debian packages that bring it; here for a node."""

BASE_IMAGE_PACKAGES: Mapping[str, str] = {"debootstrap": "debootstrap debian-archive-keyring"}
"""The same for building the base image."""

ENVIRONMENT_PACKAGES: Mapping[str, str] = {"import ensurepip": "python3-venv"}
"""The same for a first virtual environment; Debian leaves this module out of its Python."""

ENGINE_PACKAGES: Mapping[str, str] = {"libnuma.so.1": "libnuma1"}
"""The same for vLLM on CPU, which links to this library."""

TEST_PACKAGES: Mapping[str, str] = {
    "unshare": "util-linux",
    "ip": "iproute2",
    "iptables": "iptables",
    "openssl": "openssl",
}
"""The same for tests that cut wires in a network of their own, or start an API server."""

DASHBOARD_PACKAGES: Mapping[str, str] = {"prometheus": "prometheus", "promtool": "prometheus"}
"""The same for tests that ask a Prometheus what the dashboards ask, and for their pictures."""

BROWSER_PACKAGES: Mapping[str, str] = {"chromium": "chromium fonts-dejavu-core"}
"""The same for the page's pictures, and for its test in a browser."""

PROXY_PACKAGES: Mapping[str, str] = {"haproxy": "haproxy"}
"""The same for tests of callers outside a cluster, who come by a proxy."""

GROUPS: Mapping[str, Mapping[str, str]] = {
    "environment": ENVIRONMENT_PACKAGES,
    "engine": ENGINE_PACKAGES,
    "tests": {**TEST_PACKAGES, **DASHBOARD_PACKAGES, **BROWSER_PACKAGES, **PROXY_PACKAGES},
    "node": {**NODE_PACKAGES, **BASE_IMAGE_PACKAGES},
}

_INSTALL_SECONDS = 600.0


def require(packages: Mapping[str, str], *, say: Say) -> None:
    """Install what is missing. Raises `ClusterError` that says what to do where apt or root is missing too."""
    lacking = missing(packages)
    if not lacking:
        return
    wanted = " ".join(lacking)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(
            f"missing on this machine: {wanted} (Debian's names); run as root with apt, or type: "
            f"sudo apt-get install {wanted}"
        )
    say(f"installing with apt: {wanted}")
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    # Another installation on this machine holds dpkg's lock for some seconds; without this apt-get fails at once.
    patience = ("--quiet=2", "--option=DPkg::Lock::Timeout=300")
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *lacking]):
        output_of("apt-get", *patience, *command, deadline_seconds=_INSTALL_SECONDS, environment=environment)
    if still := missing(packages):
        raise ClusterError(f"apt-get installed them, and yet these are missing: {' '.join(still)}")


def missing(packages: Mapping[str, str]) -> list[str]:
    """The packages whose program, library or module is not on this machine, in a stable order."""
    absent = (names for name, names in packages.items() if not _present(name))
    return sorted({package for names in absent for package in names.split()})


def cni_folder() -> Path:
    """The folder that has the CNI plugins. Raises `ClusterError` when none has."""
    for folder in CNI_FOLDERS:
        if (folder / "ptp").exists():
            return folder
    raise ClusterError(f"no CNI plugins in {' or '.join(map(str, CNI_FOLDERS))}")


def _present(name: str) -> bool:
    if name.startswith("import "):
        importlib.invalidate_caches()
        return importlib.util.find_spec(name.removeprefix("import ")) is not None
    if ".so." in name:
        try:
            ctypes.CDLL(name)
        except OSError:
            return False
        return True
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", *map(str, CNI_FOLDERS)])
    return shutil.which(name, path=search) is not None


def main() -> None:
    """Install the packages of the named groups that are missing, or say what to type."""
    parser = argparse.ArgumentParser(prog="python -m cluster.packages", description=main.__doc__)
    parser.add_argument("groups", nargs="+", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS))
    try:
        for group in parser.parse_args().groups:
            require(GROUPS[group], say=timed_lines())
    except ClusterError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

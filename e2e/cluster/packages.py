"""The system programs a node and its images need, installed with apt where they are missing."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cluster.processes import ClusterError, output_of
from cluster.progress import Say

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
"""Program -> the Debian packages that bring it, for a node."""

BASE_IMAGE_PACKAGES: Mapping[str, str] = {"debootstrap": "debootstrap debian-archive-keyring"}
"""The same for building the base image."""

_INSTALL_SECONDS = 600.0


def require(packages: Mapping[str, str], *, say: Say) -> None:
    """Install what is missing. Raises `ClusterError` that says what to do where apt or root is missing too."""
    lacking = missing(packages)
    if not lacking:
        return
    wanted = " ".join(lacking)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"missing on this machine: {wanted} (Debian's names); install them, or run as root with apt")
    say(f"installing with apt: {wanted}")
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "--quiet=2"], ["install", "--quiet=2", "--yes", "--no-install-recommends", *lacking]):
        output_of("apt-get", *command, deadline_seconds=_INSTALL_SECONDS, environment=environment)
    if still := missing(packages):
        raise ClusterError(f"apt-get installed them, and yet these are missing: {' '.join(still)}")


def missing(packages: Mapping[str, str]) -> list[str]:
    """The packages whose program is not on this machine, in a stable order."""
    absent = (names for program, names in packages.items() if not _present(program))
    return sorted({package for names in absent for package in names.split()})


def cni_folder() -> Path:
    """The folder that has the CNI plugins. Raises `ClusterError` when none has."""
    for folder in CNI_FOLDERS:
        if (folder / "ptp").exists():
            return folder
    raise ClusterError(f"no CNI plugins in {' or '.join(map(str, CNI_FOLDERS))}")


def _present(program: str) -> bool:
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", *map(str, CNI_FOLDERS)])
    return shutil.which(program, path=search) is not None

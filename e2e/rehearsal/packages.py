"""Both versions as wheels, and a package index on loopback that has them and nothing else."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster import direct
from cluster.processes import Daemon, free_port, kill, wait_until
from first_minute import UV, Steps, built
from rehearsal.later_version import make_later

INDEX: Final = "pypiserver==2.4.2"


@dataclass(frozen=True, kw_only=True)
class Packages:
    """The wheels of this version and of the later one."""

    folder: Path
    """What the index serves."""
    now: str
    later: str
    tree: Path
    """This version's source archive, unpacked, with its chart."""
    later_tree: Path
    """The later version's."""
    megabytes: dict[str, float]
    """By file name."""


def build(steps: Steps, scratch: Path) -> Packages:
    """Build this tree's package, and the later version's from the source archive of it."""
    folder = scratch / "packages"
    archive, wheel = built(steps, folder)
    tree, later_tree = unpacked(archive, scratch / "now"), unpacked(archive, scratch / "later")
    now = wheel.name.split("-")[1]
    later = make_later(later_tree, now)
    steps.run(f"build {later}, made up", UV, "build", "--quiet", "--wheel", "--out-dir", folder, cwd=later_tree)
    sizes = {path.name: round(path.stat().st_size / 1e6, 2) for path in sorted(folder.glob("rewardpool-*"))}
    return Packages(folder=folder, now=now, later=later, tree=tree, later_tree=later_tree, megabytes=sizes)


def unpacked(archive: Path, folder: Path) -> Path:
    """The sources of an archive, in a folder that this makes."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    [tree] = folder.iterdir()
    return tree


@contextmanager
def served(steps: Steps, packages: Path, scratch: Path) -> Iterator[str]:
    """The address of an index with these packages, as long as the context is open."""
    environment, port = scratch / "index", free_port()
    steps.run("environment of the index", UV, "venv", "--quiet", environment)
    steps.run("install the index", UV, "pip", "install", "--quiet", "--python", environment / "bin" / "python", INDEX)
    server, options = environment / "bin" / "pypi-server", ["--disable-fallback", "-i", "127.0.0.1", "-p", str(port)]
    index = Daemon("package index", [server, "run", *options, packages], log=scratch / "index.log")
    url = f"http://127.0.0.1:{port}/simple/"
    try:
        wait_until(lambda: _answers(url), what="the package index", deadline_seconds=30, daemons=[index])
        yield url
    finally:
        kill([index])


def _answers(url: str) -> bool:
    try:
        with direct.opener().open(f"{url}rewardpool/", timeout=2) as answer:
            return b"rewardpool-" in answer.read()
    except OSError:
        return False


@dataclass(frozen=True)
class Index:
    """Installs from the index; what it does not have comes from where uv finds packages otherwise."""

    url: str
    steps: Steps

    def make(self, environment: Path, python: str | Path, what: str, *options: str) -> Path:
        """Make an environment with a package such as `rewardpool[router]==0.2.0`."""
        self.steps.run(f"environment {environment.name}", UV, "venv", "--quiet", "--python", python, environment)
        return self.install(environment, what, *options)

    def install(self, environment: Path, what: str, *options: str) -> Path:
        """Install into an environment, over what it has of it."""
        source = [
            "--index",
            self.url,
            "--refresh-package",
            "rewardpool",
            "--python",
            str(environment / "bin" / "python"),
        ]
        name = f"install {what} into {environment.name}"
        self.steps.run(name, UV, "pip", "install", "--quiet", *source, *options, what)
        return environment

"""`make tutorials`: run the tutorials' commands word by word, as a new user types them, with what each takes.

A tutorial is a page of docs/tutorials/, and docs/production.md is typed like one. Its `console` blocks are one session
of a shell, in a copy of the repository and with an empty home: lines that begin with `$ ` are typed, with what follows
up to the end of a here-document, and the lines below must be in what comes of it, in that order. `…` in such a line
stands for anything.

Pages that install the same, one after the other, share the environment that the first of them made: pip has less to do.
A page of `ON_CLUSTER` finds a fresh cluster, kubectl, helm and rewardpool, and in `$REGISTRY`, a registry on this
machine, the image that the first of them says how to build.

What every command took goes to `.rewardpool/tutorials.json`.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cluster import binaries, images
from cluster.choose import open_cluster
from cluster.contract import Cluster, NotPossibleError
from cluster.folders import STATE
from cluster.progress import timed_lines
from exit_status import exit_status
from first_pool import build_function_image
from installation import Installation, refuse_used_cluster
from scene import StoryError

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = {
    page.stem: page for page in (*sorted((ROOT / "docs" / "tutorials").glob("*.md")), ROOT / "docs" / "production.md")
}
"""The pages by their names."""
RESULT: Final = ROOT / ".rewardpool" / "tutorials.json"
PAGE_SECONDS: Final = 1_800.0
"""The deadline of a page."""
ENVIRONMENT: Final = "environment"
"""Where pages make the one that they install into, from the home."""
ON_CLUSTER: Final = ("kubernetes", "production")
"""Pages whose commands need a cluster. Where they share one, each before the last leaves it as it was."""
IMAGE: Final = "localhost/rewards:1"
PROGRAMS: Final = ("*/bin/rewardpool", "rewardpool/.rewardpool/venvs/dev/bin/rewardpool")
"""Where a page installs the command line, from the home: an environment of its own, or the checkout's."""
MARK: Final = "\x1e"
"""Ends what a command prints; before its exit status."""


class TutorialError(StoryError):
    """A command of a page failed, or did not print what the page shows."""


@dataclass(frozen=True)
class Typed:
    """A command that a page has its reader type, and the lines that it shows below."""

    command: str
    shown: tuple[str, ...]


def typed_commands(page: str) -> list[Typed]:
    """The commands of a page's `console` blocks, in their order.

    Raises:
        TutorialError: A block begins with something else than a command, or a here-document has no end.
    """
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [typed for block in blocks for typed in _commands(block.splitlines())]


def _commands(lines: list[str]) -> Iterator[Typed]:
    index = 0
    while index < len(lines):
        if not lines[index].startswith("$ "):
            raise TutorialError(f"a console block must begin with a command: {lines[index]!r}")
        command = [lines[index].removeprefix("$ ")]
        index += 1
        while command[-1].endswith("\\"):
            command.append(lines[index])
            index += 1
        if here := re.search(r"<<'(\w+)'", command[-1]):
            if here[1] not in lines[index:]:
                raise TutorialError(f"no line {here[1]} ends the text of `{command[0]}`")
            end = lines.index(here[1], index) + 1
            command += lines[index:end]
            index = end
        start = index
        while index < len(lines) and not lines[index].startswith("$ "):
            index += 1
        yield Typed("\n".join(command), tuple(line for line in lines[start:index] if line.strip()))


def of_release(commands: Sequence[Typed], version: str) -> list[Typed]:
    """The same commands, but with the package of that version from an index in place of the checkout's."""
    install = re.compile(r"^(pip install .*)'\.(\[[\w,-]+\])'")
    return [replace(one, command=install.sub(rf"\1'rewardpool\2=={version}'", one.command)) for one in commands]


def missing_line(shown: Sequence[str], printed: str) -> str | None:
    """The first line that is shown and not printed, after those before it; None where all are."""
    lines = iter(line.strip() for line in printed.splitlines())
    for line in shown:
        pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
        if not any(re.fullmatch(pattern, printed_line) for printed_line in lines):
            return line
    return None


def user_environment(inherited: Mapping[str, str], home: Path) -> dict[str, str]:
    """A new user's variables: an empty home, no cluster, no other Python; pip's own are as they were."""
    ours = ("REWARDPOOL_", "PYTHON", "VIRTUAL_ENV", "XDG_", "KUBECONFIG", "HF_")
    kept = {name: text for name, text in inherited.items() if not name.startswith(ours)}
    cache = inherited.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))  # so that wheels are downloaded once
    return kept | {"HOME": str(home), "KUBECONFIG": str(home / "none"), "PIP_CACHE_DIR": cache, "TERM": "dumb"}


def copied_repository(target: Path) -> None:
    """Copy what git tracks, or would track, as a clone has it."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def script(commands: Sequence[Typed]) -> str:
    """A script that types them in one shell; it ends at the first that fails."""
    mark = f"status=$?; printf '\\n{MARK}%s\\n' $status; [ $status = 0 ] || exit 1"
    return "\n".join(f"{typed.command}\n{mark}" for typed in commands) + "\n"


@contextmanager
def fresh_cluster() -> Iterator[dict[str, str]]:
    """Start a cluster, and a registry with the image of a function pool; yields a shell's variables for both."""
    say = timed_lines()
    programs = [binaries.ensure(name, say=say)[name].parent for name in ("kubectl", "helm")]
    with open_cluster(nodes=1, say=say) as cluster:
        refuse_used_cluster(cluster)
        archive = build_function_image(Installation(cluster, folder=STATE, say=say), IMAGE)
        # rewardpool last: any other program of its environment is the system's.
        path = os.pathsep.join([*map(str, programs), os.environ["PATH"], str(Path(sys.executable).parent)])
        with registry_of(cluster, archive) as address:
            yield {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path, "REGISTRY": address}


@contextmanager
def registry_of(cluster: Cluster, archive: Path) -> Iterator[str]:
    """Registry that has the image for the nodes: one on this machine, or a mere name where they have its file."""
    with ExitStack() as stack:
        try:
            address = stack.enter_context(cluster.registry()).address
        except NotPossibleError:
            cluster.load_image(archive)
            address = IMAGE.partition("/")[0]
        else:
            images.push(IMAGE, f"{address}/{IMAGE.partition('/')[2]}")
        yield address


def run_page(
    page: Path, folder: Path, variables: Mapping[str, str] | None = None, *, version: str | None = None
) -> dict[str, float]:
    """Type a page's commands with a new home, with further `variables`; returns the seconds of each.

    With a `version` the page installs that from pip's index, and not the checkout.

    Raises:
        TutorialError: One failed, printed something else than shown, or all took longer than `PAGE_SECONDS`.
    """
    commands = typed_commands(page.read_text())
    commands = of_release(commands, version) if version else commands
    home, checkout = folder / "home", folder / "home" / "rewardpool"
    new_home(home, made_by=folder / "made-by", commands=commands)
    checkout.mkdir()
    copied_repository(checkout)
    (folder / "script").write_text(script(commands))
    shell = subprocess.Popen(
        ["bash", folder / "script"],
        cwd=checkout,
        env=user_environment(os.environ, home) | dict(variables or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return _seconds(shell, commands, page)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        _take_down(home)


def new_home(home: Path, *, made_by: Path, commands: Sequence[Typed]) -> None:
    """Empty the home, but for an environment that the page before made by the same commands, which `made_by` has."""
    install = "\n".join(installing(commands))
    kept = {ENVIRONMENT} if install and made_by.exists() and made_by.read_text() == install else set()
    home.mkdir(parents=True, exist_ok=True)
    for old in home.iterdir():
        if old.name not in kept:
            old.unlink() if old.is_symlink() or old.is_file() else shutil.rmtree(old)
    made_by.write_text(install)


def installing(commands: Sequence[Typed]) -> list[str]:
    """Those that make the page's environment: up to the one that installs into it; none on a page that makes none."""
    typed = [one.command for one in commands]
    last = next((number for number, command in enumerate(typed, start=1) if command.startswith("pip install ")), 0)
    return typed[:last]


def _seconds(shell: subprocess.Popen[str], commands: Sequence[Typed], page: Path) -> dict[str, float]:
    """Read what the shell prints, command by command."""
    assert shell.stdout is not None
    alarm = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, PAGE_SECONDS)
    seconds: dict[str, float] = {}
    try:
        for typed in commands:
            started, printed = time.monotonic(), ""
            for line in shell.stdout:
                if line.startswith(MARK):
                    break
                printed += line
            name = typed.command.splitlines()[0]
            if line[len(MARK) :].strip() != "0":
                raise TutorialError(f"{page.name}: `{name}` failed\n{printed}")
            if (missing := missing_line(typed.shown, printed)) is not None:
                raise TutorialError(f"{page.name}: `{name}` does not print {missing!r}, but\n{printed}")
            seconds[name] = round(time.monotonic() - started, 1)
            print(f"  {seconds[name]:6.1f} s  {name}", flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
    return seconds


def _too_long(*_: object) -> None:
    raise TutorialError(f"not done after {PAGE_SECONDS:.0f} s")


def _take_down(home: Path) -> None:
    """Stop what a page that failed half way left running."""
    programs = (program for pattern in PROGRAMS for program in home.glob(pattern))
    for program in programs:
        environment = user_environment(os.environ, home)
        subprocess.run([program, "down"], env=environment, capture_output=True, timeout=120, check=False)


def main() -> int:
    """Run the pages that are named, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="*", help="such as one-machine; default: all")
    names = parser.parse_args().page or sorted(PAGES)
    result: dict[str, dict[str, float]] = {}
    # Those on a cluster last: they install nothing here.
    with tempfile.TemporaryDirectory(prefix="rewardpool-tutorial-") as folder:
        for name in sorted(names, key=lambda name: name in ON_CLUSTER):
            print(name, flush=True)
            with fresh_cluster() if name in ON_CLUSTER else nullcontext() as variables:
                result[name] = run_page(PAGES[name], Path(folder), variables)
            print(f"  {sum(result[name].values()):6.1f} s  in all", flush=True)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))

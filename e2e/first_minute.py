"""`make first-minute`: README's first block, done as a new user does it, from the built package to a scored sample.

The commands, the files and the score are taken from README itself. The archive and the wheel are built, checked as an
index checks them, and installed into an environment each. The archive's installation downloads what is not in uv's
cache yet; the wheel's is offline, so the minute that is measured has no download in it. Files are copied, so that the
size is the environment's own. The result goes to `.rewardpool/first_minute.json`.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from exit_status import exit_status
from scene import StoryError

ROOT: Final = Path(__file__).resolve().parents[1]
UV: Final = ROOT / ".rewardpool" / "venvs" / "uv" / "bin" / "uv"
RESULT: Final = ROOT / ".rewardpool" / "first_minute.json"
TWINE: Final = "twine==7.0.0"
STEP_SECONDS: Final = 600.0
"""The deadline of a step."""
MOST_SECONDS: Final = 60.0
MOST_MEGABYTES: Final = 400.0


class StepError(StoryError):
    """A step failed, or README shows what is not so."""


@dataclass(frozen=True)
class Typed:
    """A command that README shows, and what it prints there."""

    words: tuple[str, ...]
    shown: str


def typed_commands(readme: str) -> list[Typed]:
    """The commands of README's first minute.

    Raises:
        StepError: README has no such block.
    """
    block = re.search(r"^## A minute$.*?^```\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if block is None:
        raise StepError("README.md has no block of commands below `## A minute`")
    lines = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block[1], re.MULTILINE)
    return [Typed(tuple(shlex.split(command, comments=True)), shown) for command, shown in lines]


def shown_files(commands: Iterable[Typed]) -> dict[str, str]:
    """The text of each file that README shows with `cat`, by its name."""
    return {
        name: typed.shown for typed in commands for tool, *names in [typed.words] if tool == "cat" for name in names
    }


def shown_extras(commands: Iterable[Typed]) -> str:
    """What README has pip install of the package: `[router]`.

    Raises:
        StepError: README installs nothing from the folder it is in.
    """
    for typed in commands:
        if typed.words[:2] == ("pip", "install") and (wanted := re.fullmatch(r"\.(\[[\w,-]+\])?", typed.words[2])):
            return wanted[1] or ""
    raise StepError("README.md's first minute has no `pip install '.[…]'`")


def refuse_other_score(typed: Typed, printed: str) -> None:
    """Raises `StepError` where `rewardpool score` prints something else than README shows."""
    if printed.strip() != typed.shown.strip():
        raise StepError(
            f"`{shlex.join(typed.words)}` printed {printed.strip()!r}; README.md shows {typed.shown.strip()!r}"
        )


def megabytes(folder: Path) -> float:
    """What the folder's files take on the disk, in 10^6 bytes; a file with several names counts once."""
    stats = [path.lstat() for path in folder.rglob("*")]
    return sum({stat.st_ino: stat.st_blocks * 512 for stat in stats}.values()) / 1e6


def user_environment(inherited: Mapping[str, str], *, programs: Path, state: Path) -> dict[str, str]:
    """A new user's variables: nothing that names another Python, another pool or a cluster."""
    kept = {
        name: text for name, text in inherited.items() if not name.startswith(("REWARDPOOL_", "PYTHON", "VIRTUAL_ENV"))
    }
    path = f"{programs}{os.pathsep}{inherited.get('PATH', os.defpath)}"
    return kept | {"PATH": path, "REWARDPOOL_STATE_DIR": str(state), "KUBECONFIG": str(state / "none")}


@dataclass
class Steps:
    """Runs commands one after the other, and keeps how long each took."""

    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, name: str, *command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
        """Run a command as the step of this name, and return its standard output.

        Raises:
            StepError: It failed, or took longer than `STEP_SECONDS`.
        """
        started = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=STEP_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise StepError(f"{name}: not done after {STEP_SECONDS:.0f} s") from None
        self.seconds[name] = time.monotonic() - started
        print(f"  {name:<44} {self.seconds[name]:6.1f} s", flush=True)
        if done.returncode:
            raise StepError(f"{name}: exit status {done.returncode}\n{done.stdout}{done.stderr}".rstrip())
        return done.stdout


def built(steps: Steps, folder: Path) -> tuple[Path, Path]:
    """The source archive and the wheel, built from it, and checked as an index checks them."""
    steps.run("build archive and wheel", UV, "build", "--quiet", "--out-dir", folder)
    [archive], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    refuse_dead_links(description(wheel))
    steps.run("check their metadata", UV, "tool", "run", "--quiet", TWINE, "check", "--strict", archive, wheel)
    return archive, wheel


def description(wheel: Path) -> str:
    """What a package index shows of the wheel: README, as the build has changed it for that."""
    with zipfile.ZipFile(wheel) as packed:
        [metadata] = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        return packed.read(metadata).decode().partition("\n\n")[2]


def refuse_dead_links(shown: str) -> None:
    """Raises `StepError` where an index could not show a description: an empty one, a diagram, a link to a file."""
    dead = re.findall(r"\]\((?![a-z]+:)[^)]*\)|^```mermaid$", shown, re.MULTILINE)
    if dead or not shown.strip():
        raise StepError(f"a package index cannot show the description: {', '.join(dead) or 'it is empty'}")


def resolve_extras(steps: Steps, wheel: Path, python: Path) -> None:
    """Find versions for every extra, downloading metadata alone; raises `StepError` with the one that has none."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in extras:
        steps.run(
            f"resolve [{extra}]", UV, "pip", "install", "--quiet", "--dry-run", "--python", python, f"{wheel}[{extra}]"
        )


def installation(environment: Path) -> list[str | Path]:
    """How uv installs into an environment."""
    return [UV, "pip", "install", "--quiet", "--link-mode=copy", "--python", environment / "bin" / "python"]


def score(steps: Steps, commands: Sequence[Typed], *, folder: Path, environment: Path) -> None:
    """Type README's `rewardpool` commands; whatever fails, its pool is gone afterwards."""
    for name, text in shown_files(commands).items():
        (folder / name).write_text(text)
    env = user_environment(os.environ, programs=environment / "bin", state=folder / "state")
    ours = [typed for typed in commands if typed.words[0] == "rewardpool"]
    try:
        for typed in ours:
            printed = steps.run(
                f"rewardpool {typed.words[1]}",
                environment / "bin" / "rewardpool",
                *typed.words[1:],
                cwd=folder,
                env=env,
            )
            if typed.words[1] == "score":
                refuse_other_score(typed, printed)
    except BaseException:
        subprocess.run([environment / "bin" / "rewardpool", "down"], cwd=folder, env=env, timeout=STEP_SECONDS)
        raise


def first_minute(steps: Steps, folder: Path) -> dict[str, object]:
    """All of it, in a folder that the caller removes; returns what was measured."""
    commands = typed_commands((ROOT / "README.md").read_text())
    extras = shown_extras(commands)
    archive, wheel = built(steps, folder / "dist")

    from_archive, from_wheel = folder / "from-archive", folder / "from-wheel"
    steps.run("environment for the archive", UV, "venv", "--quiet", "--python", sys.executable, from_archive)
    steps.run(f"install the archive{extras}, downloads and all", *installation(from_archive), f"{archive}{extras}")
    print(steps.run("rewardpool --version", from_archive / "bin" / "rewardpool", "--version").rstrip())
    resolve_extras(steps, wheel, from_archive / "bin" / "python")

    before = set(steps.seconds)
    steps.run("environment for the wheel", UV, "venv", "--quiet", "--python", sys.executable, from_wheel)
    steps.run(f"install the wheel{extras}, offline", *installation(from_wheel), "--offline", f"{wheel}{extras}")
    work = folder / "work"
    work.mkdir()
    score(steps, commands, folder=work, environment=from_wheel)
    minute = {
        name: seconds for name, seconds in steps.seconds.items() if name not in before and name != "rewardpool down"
    }
    return {
        "seconds": round(sum(minute.values()), 1),
        "megabytes": round(megabytes(from_wheel)),
        "downloads": "none: uv's cache was warm",
        "steps": {name: round(seconds, 1) for name, seconds in steps.seconds.items()},
    }


def main() -> int:
    """Measure, print and write it; returns 1 where the environment is too large.

    Raises:
        StepError: A step failed, or the score is another one than README shows.
    """
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="rewardpool-first-minute-") as folder:
        result = first_minute(steps, Path(folder))
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    seconds, size = float(str(result["seconds"])), float(str(result["megabytes"]))
    for what, measured, most, unit in (
        ("from the wheel to a score, nothing downloaded", seconds, MOST_SECONDS, "s"),
        ("size of the environment", size, MOST_MEGABYTES, "MB"),
    ):
        print(f"{what:<46} {measured:6.1f} {unit} (aim: {most:.0f}{'' if measured <= most else ', MISSED'})")
    # Seconds are also those of whatever else runs on the machine.
    return 0 if size <= MOST_MEGABYTES else 1


if __name__ == "__main__":
    sys.exit(exit_status(main))

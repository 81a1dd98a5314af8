"""Draws what a terminal shows of a pool on one machine, from the real commands: `docs/terminal_picture.py FILE.svg`.

The commands run in a folder of their own, with colours as on a terminal; rich draws what they print as SVG, without its
font, which a page would have to fetch from elsewhere.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

COLUMNS: Final = 104
COMMAND_SECONDS: Final = 120.0
REWARDS: Final = """def compute_score(data_source, solution_str, ground_truth, extra_info):
    return float(ground_truth in solution_str) - 0.001 * len(solution_str)
"""
MANIFEST: Final = """apiVersion: rewardpool.dev/v1alpha1
kind: RewardPool
metadata: {name: rules}
spec:
  model: {source: "python://rewards:compute_score"}
  replicas: 2
"""
COMMANDS: Final = (
    ("cat", "pool.yaml"),
    ("rewardpool", "up", "-f", "pool.yaml", "--detach"),
    ("rewardpool", "score", "The answer is 4.", "--ground-truth", "4"),
    ("rewardpool", "status"),
    ("rewardpool", "down"),
)
SVG: Final = """<svg xmlns="http://www.w3.org/2000/svg" class="rich-terminal" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>\
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
"""Rich's own form has its font's address in it."""


def main() -> None:
    """Run the commands and write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path)
    path: Path = parser.parse_args().path
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "rewards.py").write_text(REWARDS)
        (folder / "pool.yaml").write_text(MANIFEST)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), shown(command)))
            console.print(Text.from_ansi(printed(command, folder)))
    svg = console.export_svg(title="a pool on one machine", code_format=SVG, unique_id="terminal")
    path.write_text("".join(f"{line.rstrip()}\n" for line in svg.splitlines()))


def shown(command: tuple[str, ...]) -> str:
    """The command as a person types it."""
    return " ".join(f'"{word}"' if " " in word else word for word in command)


def printed(command: tuple[str, ...], folder: Path) -> str:
    """What the command prints, in colours.

    Raises:
        subprocess.CalledProcessError: it fails.
    """
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": programs, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    if "up" not in command:  # whose table is drawn anew all the time where it takes its output for a terminal's
        own["FORCE_COLOR"] = "1"
    variables = os.environ | own | {"REWARDPOOL_STATE_DIR": str(folder / "state"), "KUBECONFIG": str(folder / "none")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
        check=True,
    )
    return done.stdout.rstrip("\n")


if __name__ == "__main__":
    main()

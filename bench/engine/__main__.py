"""Runs every part and writes the figures to one file, setting by setting.

python -m engine --only vllm --rounds 5 --samples 200
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from engine import engines, functions
from engine.aims import PARTS, aims
from engine.tables import show

RESULT: Final = Path(__file__).parents[2] / ".rewardpool" / "bench" / "engine.json"
FUNCTIONS_SHARE: Final = 10
"""So many times more samples in a round of functions than in one of engines, which take so many times longer."""


def measure(part: str, folder: Path, *, samples: int, rounds: int, progress: Progress) -> Iterator[dict[str, Any]]:
    """Each setting of a part."""
    if part == "functions":
        return functions.measure(folder, samples=FUNCTIONS_SHARE * samples, rounds=rounds, progress=progress)
    return engines.measure(part, folder, samples=samples, rounds=rounds, progress=progress)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="engine",
        description="Real engines scored directly and through router and client; the function engine beside uvicorn.",
        epilog='example: make bench-engine BENCH_ARGS="--only vllm"',
    )
    parser.add_argument("--only", choices=PARTS, help="one part; of the others the file keeps what it has")
    parser.add_argument("--rounds", type=int, default=7, help="in which every way has its turn (default 7)")
    parser.add_argument(
        "--samples",
        type=int,
        default=300,
        help=f"of a way in a round (default 300); {FUNCTIONS_SHARE}-fold of functions",
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left, as at Ctrl-C
    result: dict[str, Any] = json.loads(given.out.read_text()) if given.only and given.out.exists() else {}
    result |= {"cores": os.cpu_count()}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    columns = *Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        tempfile.TemporaryDirectory(prefix="rewardpool-bench-") as folder,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        for part in (given.only,) if given.only else PARTS:
            result[part] = []
            place = Path(folder, part)
            for setting in measure(part, place, samples=given.samples, rounds=given.rounds, progress=progress):
                result[part].append(setting)
                result["aims"] = aims(result)
                given.out.write_text(json.dumps(result, indent=2) + "\n")
    show(result)


if __name__ == "__main__":
    main()

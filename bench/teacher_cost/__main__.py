"""Runs the parts and writes the figures to one file, size by size.

python -m teacher_cost --positions 2048 --rounds 3
"""

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from client_cost.tables import aims_table
from rich.console import Console
from rich.table import Table

from teacher_cost import client, health, wires
from teacher_cost.aims import aims

RESULT: Final = Path(__file__).parents[2] / ".rewardpool" / "bench" / "teacher.json"
POSITIONS: Final = (2048, 8192, 32768)
TOP_KS: Final = (1, 8, 64)
VALUES: Final = 1 << 21
"""Of a round of the client's: of small answers there are more."""
AT_ONCE: Final = (1, 8)
HEALTH: Final = {"positions": 8192, "top_k": 64, "requests": 24}
PARTS: Final = ("wires", "client", "health")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="teacher_cost",
        description="A teacher's wire, its client, and `/health` meanwhile.",
    )
    parser.add_argument("--positions", type=int, nargs="+", default=POSITIONS)
    parser.add_argument("--top-k", type=int, nargs="+", default=TOP_KS)
    parser.add_argument("--rounds", type=int, default=5, help="in which every way has its turn (default 5)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts (default all)")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    result: dict[str, Any] = {"cores": os.cpu_count(), "wires": [], "client": []}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    asked = list(wires.sizes(tuple(given.positions), tuple(given.top_k)))
    for one in asked if "wires" in given.only else ():
        result["wires"].append(wires.measure(one, rounds=given.rounds))
    for one in asked if "client" in given.only else ():
        requests = min(200, max(8, VALUES // one.values))
        for at_once in AT_ONCE:
            figures = client.measure(one, rounds=given.rounds, requests=requests, at_once=at_once)
            result["client"].append(asyncio.run(figures))
    if "health" in given.only:
        with tempfile.TemporaryDirectory() as folder:
            result["health"] = health.measure(Path(folder), **HEALTH)
    result["aims"] = aims(result)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    show(result)


def show(result: dict[str, Any]) -> None:
    """Print the figures."""
    console = Console(width=140)
    table = Table(
        "positions",
        "k",
        "MB",
        "nested MB",
        "server ms",
        "nested: json",
        "orjson",
        "client ms",
        "nested: json",
        "orjson",
    )
    for size in result["wires"]:
        figures = [f"{size['bytes'][way] / 1e6:.2f}" for way in ("rewardpool", "json")]
        for end in ("server", "client"):
            figures += [f"{size['seconds'][way][end] * 1e3:.1f}" for way in ("rewardpool", *wires.NESTED)]
        table.add_row(str(size["positions"]), str(size["top_k"]), *figures)
    if result["wires"]:
        console.print(table)
    if "health" in result:
        console.print(result["health"])
    console.print(aims_table(result))


if __name__ == "__main__":
    main()

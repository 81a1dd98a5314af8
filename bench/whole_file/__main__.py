"""Scores a file by a function pool of this machine, with `kill -9` on the way, and then its ledger; writes the figures.

python -m whole_file --rows 2000 --kills 1
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from local_pool import local_pool

from rewardpool import FunctionSample, Pool, RewardConfig, Sample, Scored
from whole_file.checks import of_ledger, of_output
from whole_file.rewards import expected

RESULT: Final = Path(__file__).parents[2] / ".rewardpool" / "bench" / "whole_file.json"
MANIFEST: Final = {
    "apiVersion": "rewardpool.dev/v1alpha1",
    "kind": "RewardPool",
    "metadata": {"name": "rows"},
    "spec": {"model": {"source": "python://whole_file.rewards:score"}, "replicas": 2},
}
CONCURRENCY: Final = 256
RUN_SECONDS: Final = 3600.0
BARE_ROWS: Final = 20_000
GROUP: Final = 8
WORDS: Final = "A step of a solution, in words that nothing depends on. "


def main() -> int:
    """Entry point; returns 1 where something is not as it should be."""
    parser = argparse.ArgumentParser(prog="whole_file", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, local_pool(MANIFEST) as pool:
        result = measured(Path(folder), pool, rows=given.rows, kills=given.kills)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0 if is_right(result) else 1


def measured(folder: Path, pool: str, *, rows: int, kills: int) -> dict[str, Any]:
    """Return the figures of the file, of its ledger, of a second scoring, and of the client without a file."""
    file, out, ledger, reward = (folder / name for name in ("rows.jsonl", "scores.jsonl", "ledger", "reward.json"))
    responses = [f"{row} {WORDS * 4}" for row in range(rows)]
    prompts = [f"{row // GROUP} {WORDS}" for row in range(rows)]
    with file.open("w") as lines:
        lines.writelines(
            json.dumps({"prompt": prompt, "response": response}) + "\n"
            for prompt, response in zip(prompts, responses, strict=True)
        )
    keeps = {"folder": str(ledger), "text": True, "file_mib": 16}
    reward.write_text(json.dumps({"pool": pool, "concurrency": CONCURRENCY, "ledger": keeps}))
    score = ["score", str(file), "--reward", str(reward), "--out", str(out), "--json"]
    killed_at = [
        _killed(score, journal=Path(f"{out}.journal"), at=rows * (one + 1) // (kills + 1)) for one in range(kills)
    ]
    report = _reported(score)
    again = _reported(["rescore", str(ledger), "--pool", pool, "--concurrency", str(CONCURRENCY), "-o", "json"])
    bare = asyncio.run(_bare(pool, responses[:BARE_ROWS]))
    return {
        "cores": os.cpu_count(),
        "rows": rows,
        "killed_at": killed_at,
        "file": asdict(of_output(responses, _lines([out]))),
        "ledger": asdict(of_ledger(responses, _lines(sorted(ledger.glob("*.jsonl"))))),
        "rescored": {name: again[name] for name in ("rows", "both", "equal", "lost", "gained", "kendall")},
        "rows_a_second": round(report["rate"]),
        "bare_client_a_second": round(bare),
    }


def is_right(result: dict[str, Any]) -> bool:
    """Return whether every row is there once, and every score is what it should be, also the second time."""
    file, again = result["file"], result["rescored"]
    return (file["once"], file["wrong"], result["ledger"]["wrong"]) == (result["rows"], 0, 0) and again[
        "rows"
    ] == again["both"] == again["equal"]


def _killed(arguments: Sequence[str], *, journal: Path, at: int) -> int:
    """Start the command, kill it with -9 at so many rows; returns the rows that it then had."""
    process = subprocess.Popen(_command(arguments), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + RUN_SECONDS
        while (done := _rows(journal)) < at:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"rewardpool score ended with {process.poll()} at {done} of {at} rows")
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()
    return _rows(journal)


def _rows(journal: Path) -> int:
    """Rows in a journal, whose first line says what it is of."""
    try:
        with journal.open("rb") as file:
            return max(0, sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) - 1)
    except FileNotFoundError:
        return 0


def _reported(arguments: Sequence[str]) -> Any:
    command = _command(arguments)
    done = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=RUN_SECONDS)
    return json.loads(done.stdout)


def _command(arguments: Sequence[str]) -> list[str | Path]:
    return [Path(sys.executable).with_name("rewardpool"), *arguments]


def _lines(files: Sequence[Path]) -> Iterator[Any]:
    """Records of files; a last line that a killed process left torn is none."""
    for file in files:
        with file.open() as lines:
            yield from (json.loads(line) for line in lines if line.endswith("\n"))


async def _bare(name: str, responses: Sequence[str]) -> float:
    """Return the samples a second of the client alone: no file, no journal, no ledger."""
    samples = (
        Sample(function=FunctionSample(data_source="", solution_str=one, ground_truth=None, extra_info={}))
        for one in responses
    )
    began = time.perf_counter()
    async with Pool(RewardConfig(pool=name, concurrency=CONCURRENCY)) as pool:
        async for index, outcome in pool.stream(samples):
            if not isinstance(outcome, Scored) or outcome.value != expected(responses[index]):
                raise RuntimeError(f"sample {index} has {outcome}")
    return len(responses) / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())

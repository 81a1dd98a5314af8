"""Runs every check that this machine can do, and writes one report."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from gpu_check.plan import CLASSES, Check, plan, why_not
from gpu_check.report import Result, as_json, as_markdown, held
from gpu_check.run import ROOT, CheckError, Machine, carry_out
from rewardpool_api import names

REPORT: Final = ROOT / ".rewardpool" / "gpu" / "report.json"
GOLDEN: Final = ROOT / ".rewardpool" / "golden"
SMI_SECONDS: Final = 60.0
PYTHONS: Final = {"vllm": names.ENV_SERVER_PYTHON, "sglang": "REWARDPOOL_SGLANG_PYTHON"}
"""What names the interpreter of an engine."""


def gpus() -> list[str]:
    """Name, memory and driver of each GPU; none where there is no nvidia-smi, no GPU, or no answer in a minute."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=SMI_SECONDS,
            check=True,
        ).stdout
    except (FileNotFoundError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in said.splitlines() if line.strip()]


def result_of(check: Check, *, count: int, folder: Path) -> Result:
    """Carry a check out where that is possible."""
    if (why := why_not(check, count)) is not None:
        return Result(name=check.name, outcome="not run", why=why)
    began = time.perf_counter()
    environ = dict(os.environ)
    if check.engine:
        environ[names.ENV_SERVER_PYTHON] = environ[PYTHONS[check.engine]]
    try:
        figures = carry_out(check, Machine(folder=folder, golden=GOLDEN, environ=environ))
    except CheckError as error:
        return Result(name=check.name, outcome="failed", seconds=time.perf_counter() - began, why=str(error))
    return Result(name=check.name, outcome="held", seconds=time.perf_counter() - began, figures=figures)


def main() -> int:
    """Entry point; the exit status is 0 where something was checked and nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m gpu_check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--on-cpu", action="store_true", help="what a CPU can do of it")
    parser.add_argument(
        "--engine", choices=PYTHONS, action="append", help="default: vllm, and sglang where its Python is named"
    )
    parser.add_argument("--out", type=Path, default=REPORT)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no pool is left, as at Ctrl-C
    found = gpus()
    if not found and not given.on_cpu:
        print("error: nvidia-smi shows no GPU here; --on-cpu does what a CPU can do of it", file=sys.stderr)
        return 1
    if unnamed := [PYTHONS[engine] for engine in given.engine or () if not os.environ.get(PYTHONS[engine])]:
        parser.error(f"set {' and '.join(unnamed)} to the interpreter that has the engine")
    engines = given.engine or [engine for engine, variable in PYTHONS.items() if os.environ.get(variable)]
    manifests = {name: json.loads((GOLDEN / name / "pool.yaml").read_text()) for name in CLASSES}
    results: list[Result] = []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for check in plan(manifests, engines, on_cpu=given.on_cpu):
        print(f"{check.name} …", flush=True)
        with tempfile.TemporaryDirectory(prefix="rewardpool-gpu-") as folder:
            results.append(result_of(check, count=len(found), folder=Path(folder)))
        print(f"  {results[-1].outcome}: {results[-1].why or results[-1].figures}", flush=True)
        # What is known so far stays, whatever becomes of the rest.
        given.out.write_text(json.dumps(as_json(results, gpus=found), indent=2) + "\n")
        given.out.with_suffix(".md").write_text(as_markdown(results, gpus=found))
    print(f"report: {given.out} and {given.out.with_suffix('.md').name}")
    return 0 if held(results) else 1


if __name__ == "__main__":
    sys.exit(main())

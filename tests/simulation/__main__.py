"""`make simulate`: seed after seed until so many hours of clusters were simulated; one that fails is shrunk and told.

Each seed is a cluster's, and a machine's as well.

The report has the hours, the processor's time for them, how often each fault came, and what broke.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from simulation import machine, world
from simulation.shrink import shrunk
from simulation.world import Outcome

REPORT = Path(".rewardpool/simulation/report.json")
LAST_LINES = 40
"""Of a failing run's history that are printed."""


@dataclass
class Report:
    """What came of all runs."""

    seconds: float = 0.0
    machine_seconds: float = 0.0
    cpu_seconds: float = 0.0
    seeds: int = 0
    samples: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome, cpu_seconds: float) -> None:
        self.seconds += outcome.virtual_seconds
        self.seeds += 1
        self._add(outcome, cpu_seconds)

    def add_machine(self, outcome: Outcome, cpu_seconds: float) -> None:
        self.machine_seconds += outcome.virtual_seconds
        self._add(outcome, cpu_seconds)

    def _add(self, outcome: Outcome, cpu_seconds: float) -> None:
        self.cpu_seconds += cpu_seconds
        self.samples += outcome.samples
        self.faults.update(step.kind for step in outcome.steps)
        self.violations += [f"seed {outcome.seed}: {violation}" for violation in outcome.violations]

    def as_json(self) -> str:
        fields = {
            "cluster_hours": round(self.seconds / 3600, 2),
            "machine_hours": round(self.machine_seconds / 3600, 2),
            "cpu_hours": round(self.cpu_seconds / 3600, 4),
            "seeds": self.seeds,
            "faults": dict(sorted(self.faults.items())),
            "samples": self.samples,
            "violations": self.violations,
        }
        return json.dumps(fields, indent=2)

    def summary(self) -> str:
        rate = self.seconds / max(self.cpu_seconds, 1e-9)
        kinds = "\n".join(f"  {count:6d}  {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.seconds / 3600:.1f} cluster-hours and {self.machine_seconds / 3600:.1f} machine-hours"
            f" of {self.seeds} seeds in {self.cpu_seconds / 3600:.3f} CPU-hours:"
            f" {rate:.0f} cluster-hours per CPU-hour\n{self.samples} samples, {len(self.violations)} violations\n"
            f"faults by kind:\n{kinds}"
        )


def story(outcome: Outcome) -> str:
    """A failing run for people."""
    steps = [f"  {step}" for step in outcome.steps] or ["  nothing happens"]
    lines = [f"  {line[:220]}" for line in outcome.history[-LAST_LINES:]]
    violations = [f"  {violation}" for violation in outcome.violations]
    parts = (f"seed {outcome.seed} fails with", *violations, "when", *steps, "end of its history", *lines)
    return "\n".join(parts)


def main() -> int:
    """Run; 1 where something broke."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--hours", type=float, default=10.0, help="of clusters, in all")
    parser.add_argument("--seed", type=int, default=None, help="the first one; each run has the next")
    parser.add_argument("--only", action="store_true", help="this seed alone, with its whole history")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000_000
    print(f"the first seed is {seed}", flush=True)
    report = Report()
    # Every run begins with a collection, which need not look through all that was imported.
    gc.freeze()
    while report.seconds < options.hours * 3600:
        for run, add in ((world.run, report.add), (machine.run, report.add_machine)):
            began = time.process_time()
            outcome = run(seed)
            add(outcome, time.process_time() - began)
            if options.only:
                print("\n".join(outcome.history))
            REPORT.parent.mkdir(parents=True, exist_ok=True)
            REPORT.write_text(report.as_json())
            if outcome.violations:
                print(f"seed {seed} fails, and is tried with fewer steps", *outcome.violations, sep="\n  ", flush=True)
                print(story(shrunk(outcome, again=run)), flush=True)
        seed += 1
        if options.only:
            break
    print(report.summary())
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())

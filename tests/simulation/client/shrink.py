"""The least that still goes wrong, and what happened in it."""

import re
from typing import Final

from simulation.client.plan import Plan, plan_of
from simulation.client.run import Result, simulate

LEAST_SAMPLES: Final = 20
SHOWN_LINES: Final = 25


def shortest(plan: Plan) -> str:
    """A failing plan made smaller for as long as it fails; how to repeat it, and its history."""
    result = simulate(plan)
    for number in range(2):
        result = _failing(plan_of(plan.seed, samples=plan.samples, faults=("nothing", plan.faults[number]))) or result
    while (samples := result.plan.samples // 2) >= LEAST_SAMPLES:
        if (smaller := _failing(plan_of(plan.seed, samples=samples, faults=result.plan.faults))) is None:
            break
        result = smaller
    plan = result.plan
    index = next((int(found[1]) for one in result.violations if (found := re.match(r"sample (\d+)", one))), None)
    history = simulate(plan, watched=index).history
    lines = [
        f"seed {plan.seed}, made as small as it fails still: {plan}",
        *result.violations[:3],
        *(f"  {line[:200]}" for line in history[:SHOWN_LINES]),
        f"again: make simulate-client SEED={plan.seed} SEEDS=1"
        f' SIMULATE="--samples {plan.samples} --faults {" ".join(plan.faults)}"',
    ]
    return "\n".join(lines)


def _failing(plan: Plan) -> Result | None:
    """What comes of a smaller plan, where it fails as well."""
    result = simulate(plan)
    return result if result.violations else None

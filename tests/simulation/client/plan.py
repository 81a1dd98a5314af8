"""What one run is: everything that its seed decides, as data."""

import random
from dataclasses import dataclass
from typing import Any, Final, Literal

from simulation.client.faults import FAULTS, PAIRS

Mode = Literal["stream", "bursts", "tasks", "shared"]
MODES: Final[tuple[Mode, ...]] = ("stream", "bursts", "tasks", "shared")
SAMPLES: Final = (1000, 3000)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run.

    Attributes:
        faults: Two of them, which overlap.
        seconds: That each lasts.
        begins: Share of the samples that have ended when the first begins.
        after: Seconds from that to the second's begin.
        config: Of the client.
        mode: How samples are handed over.
        kind: Of the samples and the pool.
        judgements: Share of conversations for a judge among them.
        pinned: Share of samples that one revision is to score.
    """

    seed: int
    faults: tuple[str, str]
    seconds: tuple[float, float]
    begins: float
    after: float
    samples: int
    config: dict[str, Any]
    mode: Mode
    kind: Literal["text", "token_ids", "function"]
    judgements: float
    pinned: float
    bad: float
    is_ours: bool
    is_local: bool
    by_name: bool
    workers: int
    places: int
    routers: int
    refuses: bool
    retries: int
    service_seconds: tuple[float, float]
    is_fixed_size: bool
    lists_requests: bool
    obeys_revisions: bool

    @property
    def timeout(self) -> float:
        return float(self.config["timeout"])

    @property
    def loses(self) -> bool:
        """Whether a sample that is not bad may end without a score."""
        enough = sum(self.seconds) + 10 * len(self.faults) < self.timeout and self.config["max_attempts"] >= 4
        return any(FAULTS[name].loses for name in self.faults) or not enough

    def __str__(self) -> str:
        config = " ".join(f"{name}={value}" for name, value in self.config.items())
        return (
            f"{self.faults[0]} for {self.seconds[0]:.1f} s and {self.faults[1]} for {self.seconds[1]:.1f} s;"
            f" {self.samples} samples of kind {self.kind} by {self.mode}; {config}; {self.workers} workers of"
            f" {self.places} places, {self.routers} routers that {'refuse' if self.refuses else 'hold'}"
        )


def _turned(pair: tuple[str, str], is_turned: bool) -> tuple[str, str]:
    return (pair[1], pair[0]) if is_turned else pair


def plan_of(seed: int, *, samples: int | None = None, faults: tuple[str, str] | None = None) -> Plan:
    """The plan of a seed. Seeds that follow each other take the pairs of faults in turn."""
    chance = random.Random(f"plan {seed}")
    drawn = PAIRS[seed % len(PAIRS)]
    is_own = faults is None or sorted(faults) == sorted(drawn)  # the seed's own faults, named again, are its own run
    turned = _turned(drawn, chance.random() < 0.5) if is_own else None
    names = faults or turned or drawn
    kind = chance.choice(("text", "text", "token_ids", "function"))
    concurrency = chance.choice((1, 4, 16, 32, 64, 64, 128))
    is_function = kind == "function"
    count = chance.randint(*SAMPLES)
    lengths = {name: chance.uniform(0.0, 1.0) for name in drawn}
    config = {
        "concurrency": concurrency,
        "batch": chance.choice((1, "auto", "auto", 8)),
        "timeout": chance.choice((20.0, 60.0, 120.0, 120.0)),
        "max_attempts": chance.choice((1, 3, 6, 6, 6)),
        "hedge": chance.random() < 0.85,
        "breaker_threshold": chance.choice((16, 10_000, 10_000)),
        "on_failure": chance.choice(
            ("skip", "skip", {"policy": {"penalty": -1.0}, "verifier": "skip", "infra": "skip", "capacity": "skip"})
        ),
    }
    return Plan(
        seed=seed,
        faults=names,
        seconds=tuple(  # type: ignore[arg-type]
            FAULTS[name].seconds[0] + (FAULTS[name].seconds[1] - FAULTS[name].seconds[0]) * lengths.get(name, 0.5)
            for name in names
        ),
        begins=chance.choice((0.0, 0.1, 0.3, 0.5)),
        after=chance.uniform(0.0, 3.0),
        samples=samples or (min(count, 600) if concurrency == 1 else count),
        config=config,
        mode=chance.choice(MODES),
        kind=kind,  # type: ignore[arg-type]
        judgements=chance.choice((0.0, 0.02)),
        pinned=chance.choice((0.0, 0.0, 0.1)),
        bad=chance.choice((0.0, 0.02)),
        is_ours=chance.random() < 0.8,
        is_local=chance.random() < 0.3,
        by_name=chance.random() < 0.5,
        workers=chance.choice((1, 2, 3, 3, 5)),
        places=chance.choice((2, 8, 32)),
        routers=chance.choice((1, 2)),
        refuses=chance.random() < 0.5,
        retries=chance.choice((0, 2, 5)),
        service_seconds=chance.choice(((0.001, 0.01), (0.02, 0.08), (0.05, 0.5))),
        is_fixed_size=is_function and chance.random() < 0.5,
        lists_requests=is_function and chance.random() < 0.8,
        obeys_revisions=chance.random() < 0.7,
    )

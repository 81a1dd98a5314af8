"""Several pools on one budget: teachers, judges and functions that the samples of the same jobs go to.

A sample goes to a pool of each entry of its job's `asks`, and is scored once all of them have answered. Pools are sized
by the operator's function, with policy Demand. Beside that, the same jobs run with a fixed fleet: each pool has all the
time as many replicas as it was given at its peak, which is what they would have to be started with by hand.

    idle     share of a fleet's GPU-seconds in which replicas had no request, those of starts included
    stall    how much later the jobs ended than with the fixed fleet, in seconds, summed over jobs
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from math import ceil
from random import Random
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from rewardpool_api.autoscaling import AutoscalingSpec, BudgetSpec, DemandPolicy, PolicySpec
from rewardpool_api.rules import ApiModel, Rule
from rewardpool_control.autoscaler.signals import Announcement, Claim
from rewardpool_simulator.announcing import SimulatedAnnouncer
from rewardpool_simulator.draws import JobDraws
from rewardpool_simulator.events import Events
from rewardpool_simulator.fleet import Request, SimulatedFleet, SimulatedReplica
from rewardpool_simulator.policies import AlwaysOn
from rewardpool_simulator.policy import Policy
from rewardpool_simulator.pool_policy import PERIOD_SECONDS, PoolPolicy
from rewardpool_simulator.run import MAX_LENGTH_FACTOR, MIN_LIMIT_SECONDS
from rewardpool_simulator.trace import FleetSpec, JobSpec, Length, parse_document
from rewardpool_simulator.trainers import FleetScorer, InstantScorer, SimulatedTrainer

NAME: Final = "budget"
Weight = Annotated[float, Field(gt=0, le=1_000_000)]


class SharedPool(ApiModel):
    """A pool of the budget."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    fleet: FleetSpec
    tokens_per_second: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Tokens of one sample that a replica works through in a second. With it a sample has as many tokens as its
    `serviceSeconds` come to, and jobs announce them (default: jobs do not know how long samples are)."""
    drain_seconds: Annotated[int, Field(ge=1, le=3600)] = 5
    cooldown_seconds: Annotated[int, Field(ge=0, le=86_400)] = 600


class SharedJob(JobSpec):
    """A job whose samples go to several pools."""

    asks: Annotated[list[dict[str, Weight]], Field(min_length=1, max_length=16)]
    """Pools with weights: a sample goes to one pool of each entry, by chance, as with a teacher for each domain."""
    length: Weight = 1.0
    """Length of the job's samples, as a multiple of the pools' `serviceSeconds`."""


class SharedTrace(ApiModel):
    """Pools of one budget, and the jobs that use them."""

    description: str = ""
    seconds: Length
    """Least length of a run, which goes on until all jobs have ended."""
    budget: Annotated[int, Field(ge=1, le=10_000)]
    """Replicas of all pools together."""
    pools: Annotated[list[SharedPool], Field(min_length=1, max_length=32)]
    jobs: Annotated[list[SharedJob], Field(min_length=1, max_length=64)]

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.pools.all(pool, self.pools.exists_one(other, other.name == pool.name))",
            message="pools must have different names",
            holds=lambda trace: len({pool.name for pool in trace.pools}) == len(trace.pools),
        ),
        Rule(
            cel="self.jobs.all(job, self.jobs.exists_one(other, other.name == job.name))",
            message="jobs must have different names",
            holds=lambda trace: len({job.name for job in trace.jobs}) == len(trace.jobs),
        ),
        Rule(
            cel="self.jobs.all(job, job.asks.all(ask, size(ask) > 0 && ask.all(n, n in self.pools.map(p, p.name))))",
            message="jobs[].asks must have entries with names of pools",
            holds=lambda trace: all(
                ask and ask.keys() <= {pool.name for pool in trace.pools} for job in trace.jobs for ask in job.asks
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class PoolUse:
    """Use of one pool in a run."""

    pool: str
    peak: int
    gpu_seconds: float
    busy_seconds: float

    @property
    def idle_share(self) -> float:
        """Share of the GPU-seconds, from 0 to 1; 0 where there were none."""
        return 1 - self.busy_seconds / self.gpu_seconds if self.gpu_seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class SharedRun:
    """The result of one run."""

    finished: bool
    seconds: float
    wait_seconds: float
    """How much later the jobs ended than if every answer had come at once, summed over jobs."""
    answered: int
    most: int
    """Largest number of replicas at one time, over all pools, those that drain included."""
    pools: tuple[PoolUse, ...]

    @property
    def total(self) -> PoolUse:
        return PoolUse(
            pool="all",
            peak=self.most,
            gpu_seconds=sum(one.gpu_seconds for one in self.pools),
            busy_seconds=sum(one.busy_seconds for one in self.pools),
        )

    def as_json(self) -> dict[str, Any]:
        by_pool = {
            one.pool: {
                "peak": one.peak,
                "gpu_seconds": round(one.gpu_seconds),
                "idle_share": round(one.idle_share, 3),
            }
            for one in (*self.pools, self.total)
        }
        return {"finished": self.finished, "wait_seconds": round(self.wait_seconds, 1), "pools": by_pool}


@dataclass(frozen=True, kw_only=True)
class SharedComparison:
    """Pools on a budget, and the fixed fleet beside them."""

    budget: SharedRun
    fixed: SharedRun

    @property
    def stall_seconds(self) -> float:
        """Delay of the jobs' end against the fixed fleet; never negative."""
        return max(0.0, self.budget.wait_seconds - self.fixed.wait_seconds)

    def as_json(self) -> dict[str, Any]:
        runs = {"budget": self.budget.as_json(), "fixed": self.fixed.as_json()}
        return {"stall_seconds": round(self.stall_seconds, 1), **runs}


def load_shared() -> SharedTrace:
    """Return the trace that comes with the package."""
    text = (files(__package__) / "traces" / f"{NAME}.yaml").read_text("utf-8")
    return parse_document(SharedTrace, text, name=NAME)


def compare_shared(trace: SharedTrace, *, seed: int = 0) -> SharedComparison:
    """Run the pools on their budget, then with the fixed fleet; the same seed gives the same figures."""
    budget = run_shared(trace, seed=seed)
    return SharedComparison(
        budget=budget, fixed=run_shared(trace, seed=seed, fixed={one.pool: one.peak for one in budget.pools})
    )


def run_shared(trace: SharedTrace, *, seed: int = 0, fixed: Mapping[str, int] | None = None) -> SharedRun:
    """Run the jobs once; `fixed` has the size of each pool, and None leaves it to the autoscaler."""
    return _SharedSimulation(trace, seed=seed, fixed=fixed).run()


class _Pool:
    """One pool, which is also the `Observation` of its policy."""

    lacks_capacity = False
    metrics_missing = False

    def __init__(
        self,
        spec: SharedPool,
        trace: SharedTrace,
        events: Events,
        *,
        seed: int,
        fixed: int | None,
        others: Callable[[str], tuple[Claim, ...]],
    ) -> None:
        self.spec = spec
        self.fleet = SimulatedFleet(spec.fleet, events, seed=f"{seed}/{spec.name}")
        self.announcers: list[SimulatedAnnouncer] = []
        self._autoscaler = PoolPolicy(
            NAME, _scaling(spec, trace.budget), self, pool=spec.name, others=partial(others, spec.name)
        )
        self._policy: Policy = self._autoscaler if fixed is None else AlwaysOn(fixed)

    @property
    def ready(self) -> Sequence[SimulatedReplica]:
        return self.fleet.ready

    def announcements(self) -> tuple[Announcement, ...]:
        said = (announcer.announcement() for announcer in self.announcers)
        return tuple(one for one in said if one is not None)

    def decide(self) -> None:
        self.fleet.scale(self._policy.decide(self.fleet.view()))

    def claim(self) -> Claim | None:
        return self._autoscaler.claim(self.fleet.view())

    def use(self) -> PoolUse:
        return PoolUse(
            pool=self.spec.name,
            peak=self.fleet.peak,
            gpu_seconds=self.fleet.gpu_seconds(),
            busy_seconds=self.fleet.busy_seconds(),
        )


def _scaling(spec: SharedPool, total: int) -> AutoscalingSpec:
    return AutoscalingSpec(
        min_replicas=0,
        max_replicas=spec.fleet.max_replicas,
        policy=PolicySpec(type="Demand", demand=DemandPolicy(drain_seconds=spec.drain_seconds)),
        cooldown_seconds=spec.cooldown_seconds,
        budget=BudgetSpec(name=NAME, max_replicas=total, priority=spec.priority),
    )


class _PoolClient:
    """A job's client of one pool: what it sends, and what it announces of that."""

    def __init__(self, pool: _Pool, job: SharedJob, events: Events, *, knows_samples: bool, seed: str) -> None:
        self.announcer = SimulatedAnnouncer(job, events, knows_samples=knows_samples)
        pool.announcers.append(self.announcer)
        self._pool = pool
        self._length = job.length
        self._random = Random(f"{seed}/{job.name}/{pool.spec.name}")
        self._in_flight = self._tokens_in_flight = 0

    def send(self, on_response: Callable[[], None]) -> None:
        seconds = self._length * self._pool.spec.fleet.service_seconds.draw(self._random)
        if self._pool.spec.tokens_per_second is None:
            self.announcer.samples_come(1)
            self._pool.fleet.submit(Request(seconds, on_response))
            return
        tokens = ceil(seconds * self._pool.spec.tokens_per_second)
        self.announcer.samples_come(1, tokens=tokens)
        self._in_flight += 1
        self._tokens_in_flight += tokens
        self.announcer.tokens_per_sample = self._tokens_in_flight / self._in_flight
        self._pool.fleet.submit(Request(seconds, partial(self._on_response, tokens, on_response)))

    def _on_response(self, tokens: int, on_response: Callable[[], None]) -> None:
        self._in_flight -= 1
        self._tokens_in_flight -= tokens
        on_response()


class _Client:
    """A job's clients of all its pools: the scorer and the announcer of its simulated trainer."""

    def __init__(self, job: SharedJob, pools: Mapping[str, _Pool], events: Events, *, seed: str) -> None:
        self._events = events
        self._asks = [tuple(ask.items()) for ask in job.asks]
        self._random = Random(f"{seed}/{job.name}/asks")
        # Which samples of a step are whose, several teachers learn from the samples.
        alone = {name for ask in job.asks if len(ask) == 1 for name in ask}
        self._clients = {
            name: _PoolClient(pools[name], job, events, knows_samples=name in alone, seed=seed)
            for name in dict.fromkeys(name for ask in job.asks for name in ask)
        }

    def submit(self, request: Request) -> None:
        asked = [
            self._random.choices([name for name, _ in ask], [weight for _, weight in ask])[0] for ask in self._asks
        ]
        left = len(asked)

        def on_response() -> None:
            nonlocal left
            left -= 1
            if not left:
                request.on_response()

        for name in asked:
            self._clients[name].send(on_response)

    def samples_come(self, samples: int) -> None:
        """Do nothing: each pool's client counts those that it sends."""

    def start(self) -> None:
        for announcer in self._announcers():
            announcer.start()

    def rollout_begins(self) -> None:
        for announcer in self._announcers():
            announcer.rollout_begins()

    def update_begins(self) -> None:
        for announcer in self._announcers():
            announcer.update_begins()

    def set_stalled(self, is_stalled: bool) -> None:
        for announcer in self._announcers():
            announcer.set_stalled(is_stalled)

    def end(self) -> None:
        for announcer in self._announcers():
            announcer.end()

    def stop(self) -> None:
        for announcer in self._announcers():
            announcer.stop()

    def _announcers(self) -> Iterator[SimulatedAnnouncer]:
        return (client.announcer for client in self._clients.values())


class _SharedSimulation:
    def __init__(self, trace: SharedTrace, *, seed: int, fixed: Mapping[str, int] | None) -> None:
        self._trace, self._seed = trace, seed
        self._events = events = Events()
        self._pools = {
            spec.name: _Pool(
                spec, trace, events, seed=seed, fixed=None if fixed is None else fixed[spec.name], others=self._others
            )
            for spec in trace.pools
        }
        self._trainers = [self._trainer(job, events) for job in trace.jobs]
        self._most = 0
        events.call_at(0.0, self._decide)

    def run(self) -> SharedRun:
        events, trace = self._events, self._trace
        limit = max(MAX_LENGTH_FACTOR * trace.seconds, MIN_LIMIT_SECONDS)
        events.run_until(trace.seconds)
        while events.now < limit and not self._is_over():
            events.run_next()
        expected = self._ends_with_instant_answers()
        ended = {one.job.name: events.now if one.ended is None else one.ended for one in self._trainers}
        return SharedRun(
            finished=self._is_over(),
            seconds=events.now,
            wait_seconds=sum(ended[job] - expected[job] for job in expected),
            answered=sum(pool.fleet.answered for pool in self._pools.values()),
            most=self._most,
            pools=tuple(pool.use() for pool in self._pools.values()),
        )

    def _trainer(self, job: SharedJob, events: Events) -> SimulatedTrainer[_Client]:
        client = _Client(job, self._pools, events, seed=str(self._seed))
        return SimulatedTrainer(job, self._draws(job), client, events, client)

    def _draws(self, job: SharedJob) -> JobDraws:
        # Its service times are of no use here: each pool's client draws its own.
        return JobDraws(job, self._trace.pools[0].fleet.service_seconds, seed=str(self._seed))

    def _ends_with_instant_answers(self) -> Mapping[str, float]:
        events = Events()
        scorer: FleetScorer = InstantScorer(events)
        trainers = [
            SimulatedTrainer(job, self._draws(job), scorer, events, SimulatedAnnouncer(job, events))
            for job in self._trace.jobs
        ]
        while events.run_next():
            pass
        return {trainer.job.name: trainer.ended or 0.0 for trainer in trainers}

    def _others(self, pool: str) -> tuple[Claim, ...]:
        claims = (one.claim() for name, one in self._pools.items() if name != pool)
        return tuple(claim for claim in claims if claim is not None)

    def _is_over(self) -> bool:
        return all(trainer.is_over for trainer in self._trainers)

    def _decide(self) -> None:
        for pool in self._pools.values():
            pool.decide()
        self._most = max(self._most, sum(len(pool.fleet.replicas) for pool in self._pools.values()))
        self._events.call_later(PERIOD_SECONDS, self._decide)

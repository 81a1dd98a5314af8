"""One run: a plan is played, and what came of it is checked."""

import asyncio
import itertools
import logging
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from time import process_time
from typing import Final
from unittest.mock import patch

from simulation.client import checks
from simulation.client.faults import FAULTS, HOST, LOCAL, PORT, Stage, Whereabouts
from simulation.client.fleet import Fleet, Router, Worker
from simulation.client.network import Network, NetworkLoop
from simulation.client.plan import Plan
from simulation.client.traffic import Traffic
from simulation.virtual_time import DeadlockError, LivelockError, VirtualTime

from rewardpool import Scored
from rewardpool._client import request

LONGEST_SECONDS: Final = 2000.0
"""Of virtual time."""
QUIET_SECONDS: Final = 5.0
"""After the last sample, in which nothing more may happen."""
MODEL_TYPES: Final = {"function": "Function"}
PACKAGES: Final = ("rewardpool._client", "rewardpool._discovery", "rewardpool._demand")


@dataclass
class Result:
    """What came of a run."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    samples: int = 0
    scored: int = 0
    requests: int = 0
    hedges: int = 0
    retries: int = 0
    virtual_seconds: float = 0.0
    cpu_seconds: float = 0.0
    turns: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    history: list[str] = field(default_factory=list)
    digest: tuple[object, ...] = ()
    """Differs where runs do."""


def simulate(plan: Plan, *, watched: int | None = None) -> Result:
    """Play a plan; its history has what became of the requests for the watched sample."""
    result = Result(plan)
    began = process_time()
    logging.disable(logging.CRITICAL)
    state = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("REWARDPOOL_")}
    try:
        with VirtualTime(seed=plan.seed, packages=PACKAGES) as time, _own_names():
            network = Network(random.Random(f"network {plan.seed}"))
            loop = NetworkLoop(time.clock, network)
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                try:
                    runner.run(_play(plan, result, loop, network, time, watched))
                except (DeadlockError, LivelockError, TimeoutError) as error:
                    result.violations.append(f"it never ends: {type(error).__name__}: {error}")
            result.violations += checks.collected(loop)
    finally:
        logging.disable(logging.NOTSET)
        os.environ.update(state)
    result.cpu_seconds = process_time() - began
    return result


@contextmanager
def _own_names() -> Iterator[None]:
    """Requests named as by a process that begins: a run is the same after others."""
    with patch.multiple(request, _NUMBERS=itertools.count(1), _process="simulated-1-"):
        yield


async def _play(
    plan: Plan, result: Result, loop: NetworkLoop, network: Network, time: VirtualTime, watched: int | None
) -> None:
    stage = _stage(plan, loop, network, time)
    traffic = Traffic(plan, stage)
    if watched is not None:
        stage.fleet.watch(lambda texts: watched < len(traffic.asks) and traffic.asks[watched].text in texts, stage.say)
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            running = asyncio.create_task(traffic.run())
            faults = [asyncio.create_task(_strike(plan, stage, traffic, number)) for number in range(len(plan.faults))]
            try:
                await asyncio.gather(running, *faults)
            finally:
                for task in (running, *faults):
                    task.cancel()
                await asyncio.gather(running, *faults, return_exceptions=True)
        turns = loop.turns
        await asyncio.sleep(QUIET_SECONDS)
        if loop.turns - turns > QUIET_SECONDS * 10 + 4 * stage.fleet.ledger.requests:
            result.violations.append(f"{loop.turns - turns} turns of the event loop after the end")
    except TimeoutError:
        result.violations.append(f"after {LONGEST_SECONDS:g} s {plan.samples - len(traffic.ends)} samples have no end")
        result.history = stage.notes
        return
    seconds = loop.time()
    _count(result, traffic, stage, loop)
    ledger = stage.fleet.ledger
    result.violations += chain(
        checks.of_samples(traffic, ledger),
        checks.of_pool_errors(traffic, ledger),
        checks.of_waiting(traffic, ledger),
        checks.of_attempts(traffic, ledger, network),
        checks.of_reports(traffic),
        checks.of_hedges(traffic, seconds),
        checks.of_leftovers(traffic, network, loop),
    )
    result.history = stage.notes


def _count(result: Result, traffic: Traffic, stage: Stage, loop: NetworkLoop) -> None:
    network = stage.fleet.network
    reports = [pool.report() for pool in traffic.pools]
    result.samples = len(traffic.ends)
    result.scored = sum(isinstance(end.what, Scored) for end in traffic.ends.values())
    result.requests = stage.fleet.ledger.requests
    result.hedges = sum(report.hedges for report in reports)
    result.retries = sum(sum(report.retries.values()) for report in reports)
    result.virtual_seconds = loop.time()
    result.turns = loop.turns
    for report in reports:
        for fault, kinds in report.failures.items():
            for kind, count in kinds.items():
                result.failures[f"{fault} {kind}"] += count
    result.digest = (
        sum(index * end.ended_at for index, end in traffic.ends.items()),
        loop.turns,
        network.connections,
        loop.time(),
        *sorted(result.failures.items()),
    )


async def _strike(plan: Plan, stage: Stage, traffic: Traffic, number: int) -> None:
    """Have one of the faults happen in its time."""
    fault, seconds = FAULTS[plan.faults[number]], plan.seconds[number]
    await traffic.reaches(plan.begins)
    if number:
        await asyncio.sleep(plan.after)
    stage.say(f"{fault.name} begins, for {seconds:.1f} s")
    await fault.play(stage, seconds)
    stage.say(f"{fault.name} is over")


def _stage(plan: Plan, loop: NetworkLoop, network: Network, time: VirtualTime) -> Stage:
    fleet = Fleet(
        loop,
        network,
        random.Random(f"fleet {plan.seed}"),
        service_seconds=plan.service_seconds,
        lists_requests=plan.lists_requests,
        obeys_revisions=plan.obeys_revisions,
    )
    hosts = [f"10.0.0.{number}" for number in range(1, plan.routers + 1)]
    fleet.routers = [Router(fleet, (host, PORT), refuses=plan.refuses, retries=plan.retries) for host in hosts]
    for router in fleet.routers:
        router.keys = ("key-0",)
        router.start()
    fleet.workers = [Worker(fleet, f"w{number}", places=plan.places, revision="r1") for number in range(plan.workers)]
    for worker in fleet.workers:
        fleet.join(worker)
    network.names[HOST] = hosts
    where = Whereabouts(
        url=f"http://{HOST}:{PORT}" if plan.by_name else f"http://{hosts[0]}:{PORT}",
        key="key-0",
        model_type=None if plan.judgements or not plan.is_ours else MODEL_TYPES.get(plan.kind, "Discriminative"),
        is_fixed_size=plan.is_fixed_size,
        source=(LOCAL if plan.is_local else object()) if plan.is_ours else None,
    )
    return Stage(loop, fleet, where, random.Random(f"faults {plan.seed}"), time)

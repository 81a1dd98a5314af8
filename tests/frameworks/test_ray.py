"""Actors on a real Ray cluster of two nodes, with a pool of real processes behind them."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from support.local_machine import LocalMachine

import rewardpool.ray
from rewardpool._demand.job import ray_rank
from rewardpool._rewards import Episode, Rating
from rewardpool.errors import ConfigError, InvalidSampleError, PoolNotFoundError
from rewardpool.openrlhf import group_of_call
from rewardpool.ray import RewardWorkers, shares_of
from rewardpool_api import names

pytestmark = pytest.mark.real

POOL = "rl/length"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMachine]:
    """A machine of this module's own, as a worker of its pool is killed."""
    machine = LocalMachine(tmp_path_factory.mktemp("ray"))
    asyncio.run(machine.up(replicas=2))
    yield machine
    code, said = asyncio.run(machine.run("down"))
    assert (code, machine.clean_up()) == (0, []), said


def two_nodes(*, attempts: int = 3) -> Cluster:
    """Return a started cluster; Ray itself gives up on a node after 30 s, which a busy machine may need."""
    cluster = None
    try:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
    except Exception as error:
        if cluster is not None:
            cluster.shutdown()
        if attempts == 1 or "timed out during startup" not in str(error):
            raise
        return two_nodes(attempts=attempts - 1)
    return cluster


@pytest.fixture(scope="module", autouse=True)
def _cluster(machine: LocalMachine) -> Iterator[None]:
    cluster = two_nodes()
    environ = {
        names.ENV_STATE_DIR: machine.environ[names.ENV_STATE_DIR],
        "KUBECONFIG": str(machine.home / "none"),
    }
    ray.init(address=cluster.address, runtime_env={"env_vars": environ})
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def workers(_cluster: None) -> Iterator[RewardWorkers]:
    workers = rewardpool.ray.spread(POOL, num_cpus=0.5)
    yield workers
    workers.close()


def episodes(count: int, *, seconds: float = 0.02) -> list[Episode]:
    """Whose rewards are 0 to 9 in each group."""
    return [
        Episode(
            prompt="p", response="7" * (index % 10), extra_info={"seconds": seconds}, id=f"e{index}", group=index // 10
        )
        for index in range(count)
    ]


def totals(ratings: list[Rating]) -> list[float | None]:
    return [rating.total for rating in ratings]


EXPECTED = [float(index % 10) for index in range(200)]


def test_every_node_has_an_actor_and_ratings_come_in_order(workers: RewardWorkers) -> None:
    assert len(set(workers.nodes)) == len(workers) == 2
    assert totals(workers.rate_batch(episodes(200))) == EXPECTED
    reports = workers.reports()
    assert [report[POOL].scored for report in reports] == [100, 100]


def test_who_is_given_the_handles_can_use_them(workers: RewardWorkers) -> None:
    @ray.remote(num_cpus=0.1)
    def elsewhere(given: RewardWorkers, batch: list[Episode]) -> Any:
        return asyncio.run(given.rate_batch_async(batch))

    assert totals(ray.get(elsewhere.remote(workers, episodes(20)))) == EXPECTED[:20]


def test_actor_worker_and_router_die_and_no_sample_is_lost(workers: RewardWorkers, machine: LocalMachine) -> None:
    actor, worker, router = workers.opened()[0], machine.worker(), machine.router()
    batch = episodes(200, seconds=1.0)
    flying = [workers.submit(batch[:100]), workers.submit(batch[100:])]
    for process in (worker.pid, actor, router.pid):
        time.sleep(0.2)  # each hits samples of 1 s in flight
        os.kill(process, signal.SIGKILL)
    first, second = ray.get(flying)
    assert totals(first) + totals(second) == EXPECTED
    assert actor not in workers.opened()
    assert not worker.is_running()
    assert not router.is_running()


def test_the_first_actor_announces_for_all_of_them(workers: RewardWorkers) -> None:
    workers.rate_batch(episodes(20))
    first, second = (report[POOL].demand for report in workers.reports())
    assert (first.announced, second.announced) == (True, False)
    assert "rank 0 does it" in second.problem


def test_the_first_process_that_asks_announces_for_a_job_without_ranks() -> None:
    @ray.remote(num_cpus=0)
    class Engine:
        def rank(self) -> list[int | None]:
            return [ray_rank(), ray_rank()]

    engines = [Engine.remote() for _ in range(3)]  # type: ignore[attr-defined]  # the decorator adds it
    assert sorted(ray.get([engine.rank.remote() for engine in engines])) == [[0, 0], [1, 1], [1, 1]]


def test_openrlhfs_samples_of_one_prompt_are_a_group_by_their_ray_task() -> None:
    # Here, so that Ray's workers need not import this module.
    class Engine:
        """As OpenRLHF's engines: a method of this name rolls a prompt out, and threads ask for rewards."""

        async def generate_responses(self, samples: int) -> list[str | None]:
            return await asyncio.gather(*(asyncio.to_thread(group_of_call) for _ in range(samples)))

        async def other(self) -> str | None:
            return await asyncio.to_thread(group_of_call)

    engine = ray.remote(num_cpus=0)(Engine).remote()
    first, second, other = ray.get(
        [engine.generate_responses.remote(4), engine.generate_responses.remote(4), engine.other.remote()]
    )
    assert (len(first), len(set(first)), len(set(second))) == (4, 1, 1)
    assert None not in {*first, *second}
    assert first[0] != second[0]
    assert (other, group_of_call()) == (None, None)


def test_an_error_of_ours_is_still_one_behind_ray(workers: RewardWorkers) -> None:
    with pytest.raises(InvalidSampleError, match="ground_truth is a set, which JSON cannot hold"):
        workers.rate_batch([Episode(prompt="p", response="r", ground_truth={1, 2})])
    with pytest.raises(PoolNotFoundError):
        rewardpool.ray.spread("rl/none", num_cpus=0.1)


def test_what_cannot_be_spread_is_refused() -> None:
    with pytest.raises(ConfigError):
        rewardpool.ray.spread("none")
    with pytest.raises(ValueError, match="per_node"):
        rewardpool.ray.spread(POOL, per_node=0)
    with pytest.raises(RuntimeError, match="no node of the Ray cluster has 64 CPUs"):
        rewardpool.ray.spread(POOL, num_cpus=64)


def test_groups_are_kept_together_and_shares_are_even() -> None:
    rows = [Episode(prompt="p", response="r", group=index // 4) for index in range(16)]
    shares = shares_of(rows, ways=3)
    assert sorted(index for share in shares for index in share) == list(range(16))
    places = {group: [share for share in shares if any(index // 4 == group for index in share)] for group in range(4)}
    assert all(len(found) == 1 for found in places.values())
    assert sorted(map(len, shares)) == [4, 4, 8]
    assert shares_of([], ways=3) == []


def test_responses_to_one_prompt_without_a_group_are_kept_together() -> None:
    rows = [Episode(prompt="p", response=str(index)) for index in range(4)]
    assert shares_of(rows, ways=2) == [[0, 1, 2, 3]]

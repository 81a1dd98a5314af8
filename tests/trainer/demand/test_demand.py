"""What a client announces of its job, in the real folder of a pool on this machine; FakeWorker scores."""

import asyncio
import json
import logging
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_worker import FakeWorker, hangs
from support.local_pool import JOB, POOL, announced, demand_file, on_this_machine, write_local_pool
from support.score_waits import waits_on

from cluster.processes import wait_until
from rewardpool import BlockingPool, Pool, RewardConfig, Sample
from rewardpool._client.report import RunningMean
from rewardpool._demand.job import name_of
from rewardpool._demand.writers import FileWriter, NotWrittenError
from rewardpool.errors import ConfigError
from rewardpool_api.demand import LEASE_SECONDS, Demand, Phase
from rewardpool_api.job_scores import JobScores

CONFIG = RewardConfig(pool=POOL)
SECONDS = 40.0
"""Deadline of what should happen within a second."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a pool that nobody serves; the test's process finds it."""
    on_this_machine(monkeypatch, tmp_path)
    return write_local_pool(tmp_path)


async def eventually(check: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, check, what="the demand says so", deadline_seconds=SECONDS)


def phase(folder: Path) -> Phase | None:
    demand = announced(folder)
    return demand and demand.phase


async def test_the_phases_of_a_loop_are_announced_as_they_begin(folder: Path) -> None:
    async with Pool(CONFIG) as pool:
        with pool.demand(samples=1024) as demand:
            await eventually(lambda: phase(folder) == "Starting")
            demand.rollout()
            await eventually(lambda: phase(folder) == "Rollout")
            demand.update()
            await eventually(lambda: phase(folder) == "Update")
        assert announced(folder) == Demand(job=JOB, phase="Ended", scored=0)


async def test_only_the_jobs_own_user_can_read_it(folder: Path) -> None:
    async with Pool(CONFIG) as pool:
        pool.demand().end()
    file = demand_file(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_a_pool_that_is_left_ends_the_demand(folder: Path) -> None:
    async with Pool(CONFIG) as pool:
        pool.demand().rollout()
    assert phase(folder) == "Ended"
    assert [thread for thread in threading.enumerate() if thread.name == "rewardpool-demand"] == []


def test_a_blocking_pool_announces_as_well(folder: Path) -> None:
    with BlockingPool(CONFIG) as pool:
        demand = pool.demand(samples=16, steps=2)
        demand.rollout()
        assert (demand.now().phase, demand.now().samples) == ("Rollout", 16)
    assert phase(folder) == "Ended"


async def test_the_share_of_the_latest_step_is_announced_once_there_is_one(folder: Path) -> None:
    times = iter([0.0, 5.0, 10.0])  # it waits for half of the step
    waits = waits_on(times.__next__, begin=0.0)
    async with Pool(CONFIG) as pool:
        pool.record_waits(waits)
        with pool.demand() as demand:
            assert demand.now().score_wait is None
            with waits.waiting():
                pass
            waits.lap()
            assert demand.now().score_wait == 0.5


async def test_the_raw_scores_of_this_process_are_announced_once_there_are_some(folder: Path) -> None:
    async with Pool(CONFIG) as pool:
        with pool.demand(ranks=2) as demand:
            assert demand.now().scores is None
            pool._counters.tally = RunningMean().plus(0.25)
            assert demand.now().scores == JobScores(count=1, mean=0.25, standard_deviation=0.0)


async def test_a_teacher_announces_no_scores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Pool(CONFIG) as pool:
        monkeypatch.setattr(Pool, "endpoint", replace(pool.endpoint, model_type="Teacher"))
        with pool.demand() as demand:
            pool._counters.retry("timeout", first=True)
            assert demand.now().scores is None


async def test_the_samples_scored_since_the_announcing_began_are_announced(folder: Path) -> None:
    async with Pool(CONFIG) as pool:
        pool._counters.scored = 7
        with pool.demand(ranks=2, samples=16) as demand:
            assert demand.now().scored == 0
            pool._counters.scored = 10
            assert demand.now().scored == 2 * 3


async def test_the_report_has_the_job_and_its_renewals(folder: Path) -> None:
    async with Pool(CONFIG) as pool:
        with pool.demand():
            await eventually(lambda: pool.report().demand.announced)
        report = pool.report().demand
    assert (report.job, report.renewals, report.failures, report.problem) == (JOB, 2, 0, "")


async def test_a_folder_that_is_gone_is_a_failure_and_not_made_anew(tmp_path: Path) -> None:
    with pytest.raises(NotWrittenError, match=r"demands cannot be written to: .*No such file"):
        await FileWriter(tmp_path / "gone").write(Demand(job=JOB, phase="Starting"))
    assert not (tmp_path / "gone").exists()


async def test_a_file_is_replaced_as_a_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path)
    await writer.write(Demand(job=JOB, phase="Starting"))
    path = demand_file(tmp_path)
    with path.open() as before:
        await writer.write(Demand(job=JOB, phase="Rollout"))
        assert before.read() == (
            f'{{"leaseSeconds": {LEASE_SECONDS}, "demand": {{"job": "grpo-7", "phase": "Starting", '
            '"spreadSeconds": 0.0, "stalled": false}}'
        )
    assert [file.name for file in path.parent.iterdir()] == [f"{JOB}.json"]


async def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    demand_file(tmp_path).parent.mkdir()
    demand_file(tmp_path).with_name(f".{JOB}.json.part").symlink_to(victim)
    with pytest.raises(NotWrittenError):
        await FileWriter(tmp_path).write(Demand(job=JOB, phase="Starting"))
    assert victim.read_text() == "precious"


async def test_the_samples_of_a_burst_are_counted_by_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with FakeWorker() as worker:
        write_local_pool(tmp_path, url=worker.url)
        async with Pool(CONFIG) as pool:
            demand = pool.demand()
            demand.rollout()
            await pool.score(Sample(text="one"))
            await pool.outcome(Sample(text="two"))
            async for _ in pool.stream([Sample(text="three"), Sample(text="four")]):
                pass
            demand.update()
            assert demand.now().samples == 4


@pytest.fixture
def stalls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wait is one that is told of."""
    monkeypatch.setattr("rewardpool._demand.cadence.STALL_SECONDS", 0.0)


@pytest.mark.usefixtures("stalls_at_once")
async def test_a_stream_that_has_all_its_samples_and_no_score_stands_still() -> None:
    async with FakeWorker(hangs) as worker, Pool(RewardConfig(url=worker.url, job=JOB)) as pool:
        demand = pool.demand()
        waiting = asyncio.create_task(anext(pool.stream([Sample(text="one")])))
        await worker.arrived.wait()
        assert demand.now().stalled
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not demand.now().stalled


@pytest.mark.usefixtures("stalls_at_once")
async def test_a_stream_whose_rollouts_go_on_does_not_stand_still_before_they_end() -> None:
    rollouts_end = asyncio.Event()

    async def rollouts() -> AsyncIterator[Sample]:
        yield Sample(text="one")
        await rollouts_end.wait()

    async with FakeWorker(hangs) as worker, Pool(RewardConfig(url=worker.url, job=JOB)) as pool:
        demand = pool.demand()
        waiting = asyncio.create_task(anext(pool.stream(rollouts())))
        await worker.arrived.wait()
        assert not demand.now().stalled
        rollouts_end.set()
        await eventually(lambda: demand.now().stalled)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.usefixtures("stalls_at_once")
def test_a_loop_says_itself_when_it_only_waits(folder: Path) -> None:
    with BlockingPool(CONFIG) as pool, pool.demand() as demand:
        with demand.waiting():
            assert demand.now().stalled
        assert not demand.now().stalled


async def test_a_bare_url_has_no_place_for_demands_which_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="rewardpool._demand")
    async with Pool(RewardConfig(url="http://127.0.0.1:9", job=JOB)) as pool:
        with pool.demand() as demand:
            demand.rollout(samples=3)
            demand.update()
        report = pool.report().demand
    [record] = [each for each in caplog.records if each.name.startswith("rewardpool._demand")]
    assert record.levelname == "INFO"
    assert "there is no place for it, as the pool was found by the config's url" in record.getMessage()
    assert (report.announced, report.failures) == (False, 0)


async def test_of_several_ranks_only_the_first_announces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    async with Pool(CONFIG) as pool:
        pool.demand().rollout()
        assert pool.report().demand.problem == "rank 0 does it, and this is rank 1"
    assert announced(folder) is None


async def test_the_samples_of_one_rank_are_not_taken_for_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    async with Pool(CONFIG) as pool:
        demand = pool.demand()
        demand.rollout()
        demand.sample_comes()
        demand.update()
        assert demand.now().samples is None


async def test_a_job_says_how_many_tokens_its_samples_have_as_far_as_they_are_token_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with FakeWorker() as worker:
        write_local_pool(tmp_path, url=worker.url)
        async with Pool(CONFIG) as pool:
            demand = pool.demand()
            demand.rollout()
            await pool.score(Sample(text="a text"))
            assert demand.now().tokens_per_sample is None
            await asyncio.gather(*(pool.score(Sample(token_ids=[7] * length)) for length in (2, 10)))
            demand.update()
            assert (demand.now().samples, demand.now().tokens, demand.now().tokens_per_sample) == (3, 3 * 6, 6.0)


@pytest.mark.parametrize(("announce", "said"), [(False, ""), (True, "false"), (True, "0"), (True, "OFF")])
async def test_config_and_environment_can_switch_it_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch, announce: bool, said: str
) -> None:
    monkeypatch.setenv("REWARDPOOL_ANNOUNCE", said)
    async with Pool(RewardConfig(pool=POOL, announce=announce)) as pool:
        pool.demand().rollout()
        assert pool.report().demand.problem == "it is switched off"
    assert announced(folder) is None


async def test_two_demands_of_one_pool_at_a_time_are_a_mistake(folder: Path) -> None:
    async with Pool(CONFIG) as pool:
        first = pool.demand()
        with pytest.raises(RuntimeError, match="announced already"):
            pool.demand()
        first.end()
        pool.demand().end()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("REWARDPOOL_JOB", "My Job", "must be lower-case letters, digits and hyphens"),
        ("REWARDPOOL_JOB", "x" * 64, "at most 63"),
        ("REWARDPOOL_ANNOUNCE", "maybe", "must be true or false"),
        ("RANK", "first", "must be a whole number"),
        ("WORLD_SIZE", "many", "must be a whole number"),
    ],
)
async def test_a_wrong_variable_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(name, value)
    async with Pool(CONFIG) as pool:
        with pytest.raises(ConfigError, match=problem) as caught:
            pool.demand()
    assert caught.value.field == f"${name}"


def test_the_configs_name_wins_over_the_environments() -> None:
    assert name_of(RewardConfig(job="mine"), {"REWARDPOOL_JOB": "theirs"}) == "mine"
    assert name_of(RewardConfig(), {"REWARDPOOL_JOB": "theirs"}) == "theirs"


@pytest.mark.parametrize("host", ["trainer-0", "node-7.cluster.local", "x" * 63, "HOST_", ""])
def test_a_job_without_a_name_has_its_hosts_and_its_process_id(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    name = name_of(RewardConfig(), {})
    assert Demand(job=name, phase="Starting").job.endswith(f"-{os.getpid()}")


def test_a_wrong_job_in_a_config_is_told_by_its_path() -> None:
    with pytest.raises(ConfigError, match=r"reward\.job: must be lower-case letters"):
        RewardConfig.parse({"job": "My Job"})


async def test_two_rewards_of_one_process_on_one_pool_do_not_overwrite_each_others_announcement(folder: Path) -> None:
    def said() -> dict[str, int | None]:
        files = demand_file(folder).parent.glob("*.json")
        return {file.stem: json.loads(file.read_text())["demand"].get("samples") for file in files}

    first, second = (Pool(RewardConfig(pool=POOL, concurrency=number)) for number in (1, 2))
    async with first, second:
        with first.demand(samples=100), second.demand(samples=7):
            await eventually(lambda: said() == {JOB: 100, f"{JOB}-2": 7})
        with second.demand() as again:
            assert again.job == JOB  # it is free again

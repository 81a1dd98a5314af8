import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from support import simulated_time
from support.score_waits import waits_on
from support.simulated_job import BrokenError, SimulatedJob

from rewardpool._score_waits import ScoreWait
from rewardpool_train.pipeline.dynamic_sampling import DynamicSampling
from rewardpool_train.pipeline.on_thread import on_thread
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.parts import GroupTask, MiniBatch, OnEnd
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan, ScheduleName
from rewardpool_train.pipeline.state import PipelineState
from rewardpool_train.pipeline.times import StepTimes

PLAN = Plan(steps=4, groups_per_step=4, groups_per_minibatch=2, group_size=1)
ROLLOUT_SECONDS, UPDATE_SECONDS, SCORE_SECONDS = 10.0, 5.0, 8.0


class TimedJob(SimulatedJob):
    """Everything takes as long every time: 10 s a rollout, 5 s an update, 8 s a score, 16 s in group 1 of a step."""

    async def roll_out(self, tasks: Sequence[GroupTask[str]], on_end: OnEnd[str, str]) -> None:
        await asyncio.sleep(ROLLOUT_SECONDS)
        for task in tasks:
            on_end(task, 0, f"{task.index}.0#1")

    async def score(self, task: GroupTask[str], member: int, rollout: str) -> float | None:
        await asyncio.sleep(SCORE_SECONDS * (2 if task.index % 4 == 1 else 1))
        return 1.0

    async def train(self, minibatch: MiniBatch[str, str]) -> None:
        await asyncio.sleep(UPDATE_SECONDS)
        self.trained.append(minibatch)


def job_of(schedule: ScheduleName, kind: type[SimulatedJob] = TimedJob, **settings: Any) -> Any:
    return kind(plan=PLAN, overlap=Overlap(schedule=schedule, **settings), rng=random.Random(1))


@pytest.mark.parametrize(
    ("schedule", "step_seconds", "wait_seconds"),
    [
        ("sync", 10 + 16 + 5 + 5, 16),  # rollout, the slowest score, two updates
        ("minibatch", 10 + 8 + 5 + 3 + 5, 8 + 3),  # the first scores, and three seconds more for the slow one
        ("one_step_off", 10 + 5 + 5, 0),  # the slow score is there when the next step is rolled out and trained
        ("one_step_off_minibatch", 10 + 5 + 5, 0),
        ("fully_async", 5 + 5, 0),  # rollouts of 10 s, on other devices
    ],
)
def test_what_a_step_takes(schedule: ScheduleName, step_seconds: float, wait_seconds: float) -> None:
    job = job_of(schedule, max_staleness=4)
    simulated_time.run(job.pipeline().run())
    steady = job.steps[2]
    assert (steady.total_seconds, steady.wait_seconds) == pytest.approx((step_seconds, wait_seconds), abs=1e-6)
    assert steady.update_seconds == pytest.approx(10)


class SlowRollouts(TimedJob):
    async def roll_out(self, tasks: Sequence[GroupTask[str]], on_end: OnEnd[str, str]) -> None:
        await asyncio.sleep(10 * ROLLOUT_SECONDS)
        for task in tasks:
            on_end(task, 0, f"{task.index}.0#1")


@pytest.mark.parametrize(
    ("schedule", "kind", "shares"),
    [
        ("sync", TimedJob, 16 / 36),
        ("minibatch", TimedJob, 11 / 31),
        ("one_step_off_minibatch", TimedJob, 0),
        # After 100 s of rollouts, 8 s for the first scores, and 3 s for the slow one after an update.
        ("fully_async", SlowRollouts, 11 / 100),
    ],
)
def test_the_share_of_a_step_that_is_waited_for_nothing_but_scores(
    schedule: ScheduleName, kind: type[TimedJob], shares: float
) -> None:
    job = job_of(schedule, kind, max_staleness=4)
    found: list[ScoreWait | None] = []

    async def run() -> None:
        waits = waits_on(asyncio.get_running_loop().time)
        pipeline = job.pipeline(waits=waits)

        async def on_step(_: StepTimes) -> None:
            found.append(waits.lap())

        pipeline._on_step = on_step
        await pipeline.run()

    simulated_time.run(run())
    assert found[2] is not None
    assert found[2].share == pytest.approx(shares, abs=1e-6)


def test_a_slow_group_delays_itself_alone() -> None:
    job = job_of("minibatch")
    simulated_time.run(job.pipeline().run())
    members = [{group.task.index % 4 for group in minibatch.groups} for minibatch in job.trained]
    assert [1 in indices for indices in members] == [False, True] * PLAN.steps


def test_the_rest_of_a_step_is_told_with_its_first_mini_batch() -> None:
    job = job_of("sync")
    simulated_time.run(job.pipeline().run())
    assert [[group.task.index for group in minibatch.rest] for minibatch in job.trained[:2]] == [[2, 3], []]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_score_that_fails_ends_the_run_with_its_error_and_leaves_nothing_running(schedule: ScheduleName) -> None:
    job = job_of(schedule, SimulatedJob)
    job.failing = 1.0

    async def run() -> int:
        with pytest.raises(BrokenError):
            await job.pipeline().run()
        return len(asyncio.all_tasks())

    assert simulated_time.run(run()) == 1
    assert not job.trained


def test_scores_that_do_not_come_are_waited_for_until_the_deadline() -> None:
    async def never(*_: Any) -> float:
        await asyncio.Event().wait()
        return 0.0

    with pytest.raises(TimeoutError, match="4 samples have no outcome after 30 s; raise step_deadline_seconds"):
        simulated_time.run(job_of("minibatch").pipeline(score=never, deadline_seconds=30).run())


def test_a_score_that_somebody_else_cancels_is_an_error_and_no_endless_wait() -> None:
    async def cancelled(*_: Any) -> float:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled from outside the run: the score of member 0 of group 0"):
        simulated_time.run(job_of("minibatch").pipeline(score=cancelled).run())


def test_rollouts_that_forget_a_member_are_an_error() -> None:
    class Forgetful(TimedJob):
        async def roll_out(self, tasks: Sequence[GroupTask[str]], on_end: OnEnd[str, str]) -> None:
            await super().roll_out(tasks[1:], on_end)

    with pytest.raises(RuntimeError, match="roll_out returned with 0 of 1 rollouts of group 0"):
        simulated_time.run(job_of("minibatch", Forgetful).pipeline().run())


class ThreadedJob(TimedJob):
    """Rolls out and trains on a thread."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.thread = ThreadPoolExecutor(1)
        self.repeats = 1

    async def roll_out(self, tasks: Sequence[GroupTask[str]], on_end: OnEnd[str, str]) -> None:
        def work() -> None:
            for task in tasks:
                for _ in range(self.repeats):
                    on_end(task, 0, f"{task.index}.0#1")

        await on_thread(self.thread, work)

    async def score(self, task: GroupTask[str], member: int, rollout: str) -> float | None:
        assert threading.current_thread() is threading.main_thread()
        return 1.0

    async def train(self, minibatch: MiniBatch[str, str]) -> None:
        await on_thread(self.thread, self.trained.append, minibatch)


@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_rollouts_may_end_on_another_thread(schedule: ScheduleName) -> None:
    job = job_of(schedule, ThreadedJob)
    await job.pipeline().run()
    assert sorted(group.task.index for minibatch in job.trained for group in minibatch.groups) == list(range(16))


async def test_a_rollout_that_ends_twice_on_another_thread_ends_the_run() -> None:
    job = job_of("minibatch", ThreadedJob)
    job.repeats = 2
    with pytest.raises(ValueError, match="member 0 of group 0 has its rollout already"):
        await job.pipeline().run()


async def test_what_goes_wrong_on_another_thread_while_the_run_ends_is_told(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()

    class LateJob(ThreadedJob):
        async def roll_out(self, tasks: Sequence[GroupTask[str]], on_end: OnEnd[str, str]) -> None:
            def work() -> None:
                for _ in range(2):
                    on_end(tasks[0], 0, "0.0#1")
                for _ in range(20):  # turns of the loop, in which the first error ends the run
                    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
                on_end(tasks[0], 0, "0.0#1")

            await on_thread(self.thread, work)

    with pytest.raises(ValueError, match="member 0 of group 0 has its rollout already"):
        await job_of("minibatch", LateJob).pipeline().run()
    assert "while the pipeline ends: member 0 of group 0 has its rollout already" in caplog.text


async def test_work_on_a_thread_is_waited_for_when_its_caller_is_cancelled() -> None:
    began, may_end, ended = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(began.set)
        may_end.wait(10)
        ended.append(True)

    with ThreadPoolExecutor(1) as thread:
        waiting = asyncio.create_task(on_thread(thread, work))
        await began.wait()
        waiting.cancel()
        loop.call_later(0.01, waiting.cancel)  # and once more, while it waits
        loop.call_later(0.02, may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert ended == [True]


class NotingAnnouncer:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def rollout(self) -> None:
        self.told.append("rollout")

    def update(self) -> None:
        self.told.append("update")

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.told.append("waiting")
        yield


def announced(schedule: ScheduleName) -> list[str]:
    job, announcer = job_of(schedule, max_staleness=9), NotingAnnouncer()
    simulated_time.run(job.pipeline(announcer=announcer).run())
    return announcer.told


def test_what_the_job_does_is_announced() -> None:
    told = announced("one_step_off_minibatch")
    assert told[:7] == ["rollout", "rollout", "waiting", "update", "waiting", "update", "rollout"]


def test_where_samples_never_stop_coming_no_update_is_announced() -> None:
    assert set(announced("fully_async")) == {"rollout", "waiting"}


def test_a_job_that_is_told_to_end_ends_after_its_step_and_can_go_on() -> None:
    job = job_of("one_step_off_minibatch", SimulatedJob)
    pipeline = job.pipeline()

    async def end(_: Any) -> None:
        pipeline.end()

    pipeline._on_step = end
    simulated_time.run(pipeline.run())
    assert len(job.trained) == PLAN.minibatches_per_step
    state = pipeline.state()
    assert [group.index for group in sorted(state.groups, key=lambda group: group.index)] == [4, 5, 6, 7]
    job.checkpoint = state.to_json(encode=str), len(job.trained)
    simulated_time.run(job.pipeline().run())
    assert len(job.trained) == PLAN.steps * PLAN.minibatches_per_step


def test_there_is_no_checkpoint_in_the_middle_of_an_update() -> None:
    job = job_of("minibatch")
    found: list[str] = []

    class Curious(TimedJob):
        async def train(self, minibatch: MiniBatch[str, str]) -> None:
            with pytest.raises(RuntimeError, match="in on_update or on_step"):
                pipeline.state()
            found.append("refused")
            await super().train(minibatch)

    pipeline = job.pipeline(learner=Curious(plan=PLAN, overlap=job.overlap, rng=job.rng))
    simulated_time.run(pipeline.run())
    assert len(found) == 8


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"schedule": "one_step_off_minibatch"},
            "was made with schedule one_step_off_minibatch, and this job has sync",
        ),
        ({"plan": Plan(steps=4, groups_per_step=4, groups_per_minibatch=4, group_size=1)}, "groups_per_minibatch 4"),
        ({"dropped": 1}, "accounts for 5 groups of the 4 that were begun"),
        ({"begun": 5}, "accounts for 4 groups of the 5 that were begun"),
        ({"trained": 9, "begun": 18}, "9 mini-batches trained, more than this job's steps have"),
    ],
)
def test_a_checkpoint_of_another_job_is_refused(changes: dict[str, Any], problem: str) -> None:
    fields: dict[str, Any] = {"schedule": "sync", "plan": PLAN, "trained": 2, "begun": 4, "groups": [], "again": {}}
    with pytest.raises(ValueError, match=problem):
        job_of("sync").pipeline(resume=PipelineState(**fields | changes))


def test_without_steps_a_mini_batch_waits_for_no_more_replaced_groups_than_its_rounds_allow() -> None:
    job = job_of("fully_async")
    job.sampling = DynamicSampling(rounds=2, is_informative=lambda scores: False)
    simulated_time.run(job.pipeline().run())
    assert [len(minibatch.dropped) for minibatch in job.trained] == [2 * PLAN.groups_per_minibatch] * len(job.trained)
    assert len(job.trained) == PLAN.steps * PLAN.minibatches_per_step


@pytest.mark.parametrize("schedule", ["sync", "one_step_off"])
def test_a_round_is_no_burst_of_its_own(schedule: ScheduleName) -> None:
    job, announcer = job_of(schedule), NotingAnnouncer()
    job.sampling = DynamicSampling(rounds=2, is_informative=lambda scores: False)
    simulated_time.run(job.pipeline(announcer=announcer).run())
    assert announcer.told.count("rollout") == PLAN.steps
    assert sum(minibatch.sampling_rounds for minibatch in job.trained) == 2 * PLAN.steps


@pytest.mark.parametrize(
    "settings",
    [{"max_staleness": -1}, {"max_staleness": 1, "publish_every": 3}, {"rollouts_at_once": 0}],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Overlap(schedule="fully_async", **settings)

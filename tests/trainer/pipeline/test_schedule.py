import re

import pytest

from rewardpool_train.pipeline.schedule import (
    SCHEDULES,
    Done,
    JobProgress,
    Plan,
    Publish,
    RollOut,
    ScheduleName,
    Train,
    next_operation,
)

PLAN = Plan(steps=3, groups_per_step=4, groups_per_minibatch=2, group_size=2)
BEGIN = JobProgress()


def sequence(name: ScheduleName, *, start: JobProgress = BEGIN, publish_every: int = 1) -> str:
    """All operations of a job: R a rollout, t a mini-batch, P a publishing, each with its number."""
    words, progress = [], start
    while True:
        match next_operation(SCHEDULES[name], PLAN, progress, publish_every=publish_every):
            case RollOut(step):
                words.append(f"R{step}")
                progress = JobProgress(rolled_out=step + 1, trained=progress.trained, published=progress.published)
            case Train(step, number):
                words.append(f"t{step}.{number}")
                progress = JobProgress(
                    rolled_out=progress.rolled_out, trained=progress.trained + 1, published=progress.published
                )
            case Publish(version):
                words.append(f"P{version}")
                progress = JobProgress(rolled_out=progress.rolled_out, trained=progress.trained, published=version)
            case Done():
                return " ".join(words)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sync", "R0 t0.0 t0.1 P2 R1 t1.0 t1.1 P4 R2 t2.0 t2.1 P6"),
        ("minibatch", "R0 t0.0 t0.1 P2 R1 t1.0 t1.1 P4 R2 t2.0 t2.1 P6"),
        ("one_step_off", "R0 R1 t0.0 t0.1 P2 R2 t1.0 t1.1 P4 t2.0 t2.1 P6"),
        ("one_step_off_minibatch", "R0 R1 t0.0 t0.1 P2 R2 t1.0 t1.1 P4 t2.0 t2.1 P6"),
        ("fully_async", "t0.0 P1 t0.1 P2 t1.0 P3 t1.1 P4 t2.0 P5 t2.1 P6"),
    ],
)
def test_the_operations_follow_from_the_table(name: ScheduleName, expected: str) -> None:
    assert sequence(name) == expected


def test_the_last_weights_are_published_also_where_only_some_are() -> None:
    assert sequence("fully_async", publish_every=4) == "t0.0 t0.1 t1.0 t1.1 P4 t2.0 t2.1 P6"


@pytest.mark.parametrize(
    ("name", "start", "expected"),
    [
        ("minibatch", JobProgress(rolled_out=1, trained=1, published=-1), "P1 t0.1 P2 R1"),
        ("one_step_off_minibatch", JobProgress(rolled_out=2, trained=1, published=-1), "P1 t0.1 P2 R2"),
        ("one_step_off_minibatch", JobProgress(rolled_out=1, trained=0, published=-1), "P0 R1 t0.0 t0.1 P2 R2"),
        ("fully_async", JobProgress(trained=5, published=-1), "P5 t2.1 P6"),
    ],
)
def test_a_resumed_job_gives_its_weights_first_and_goes_on_in_the_middle_of_a_step(
    name: ScheduleName, start: JobProgress, expected: str
) -> None:
    assert sequence(name, start=start).startswith(expected)


def test_which_scores_are_waited_for_is_what_tells_the_on_policy_schedules_apart() -> None:
    waiting = {name: schedule.by_minibatch for name, schedule in SCHEDULES.items()}
    assert waiting == {
        "sync": False,
        "minibatch": True,
        "one_step_off": False,
        "one_step_off_minibatch": True,
        "fully_async": True,
    }


def test_a_step_that_cannot_be_cut_into_mini_batches_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("groups_per_step is 4; it must be a multiple of")):
        Plan(steps=1, groups_per_step=4, groups_per_minibatch=3, group_size=2)

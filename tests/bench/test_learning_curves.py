"""What the rewards of several jobs say about two schedules."""

from pathlib import Path

from learning_curves.jobs import Job
from learning_curves.verdict import final_reward, verdicts


def test_the_final_reward_is_the_mean_of_the_last_steps() -> None:
    assert final_reward([0.0] * 50 + [1.0] * 10) == 1.0


def test_a_schedule_within_the_spread_of_the_seeds_learns_alike() -> None:
    found = verdicts(
        {"sync": {0: [0.80] * 10, 1: [0.90] * 10}, "one_step_off_minibatch": {0: [0.82] * 10, 1: [0.84] * 10}}
    )
    assert found["one_step_off_minibatch"] == {
        "final_reward": 0.83,
        "least": 0.82,
        "most": 0.84,
        "vs_sync": -0.02,
        "within_spread": True,
    }


def test_a_schedule_far_from_all_seeds_does_not() -> None:
    found = verdicts(
        {"sync": {0: [0.85] * 10, 1: [0.86] * 10}, "one_step_off_minibatch": {0: [0.5] * 10, 1: [0.51] * 10}}
    )
    assert found["one_step_off_minibatch"]["within_spread"] is False


def test_without_the_baseline_there_is_no_verdict() -> None:
    assert verdicts({"one_step_off_minibatch": {0: [0.5] * 10}})["one_step_off_minibatch"]["within_spread"] is None


def test_jobs_differ_in_schedule_and_seed_alone() -> None:
    def config(schedule: str, seed: int) -> dict[str, object]:
        job = Job(
            schedule=schedule,  # type: ignore[arg-type]
            seed=seed,
            steps=3,
            pool="default/vowels",
            policy=Path("policy"),
            prompts=Path("prompts.jsonl"),
        )
        return job.config(Path("out"))

    one, other = config("sync", 0), config("one_step_off_minibatch", 1)
    assert {name for name in one if one[name] != other[name]} == {"schedule", "seed"}

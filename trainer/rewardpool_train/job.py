"""Train a policy by any reward: a reward pool, a judge, a function, a mixture.

    torchrun --nproc-per-node 2 -m rewardpool_train CONFIG.yaml

Without torchrun it is a job of one process. The output folder of the config gets metrics.jsonl with one line per step
(`actor.records.StepRecord` has its fields), metrics.json with the totals, policy/ with the model, and, if configured,
checkpoints/ and tensorboard/.

SIGTERM, which schedulers send before they remove a job's machine, ends the job after the current step, with all of
these written. torchrun forwards the signal and gives its processes 30 seconds.
"""

import argparse
import dataclasses
import json
import logging
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import transformers

from rewardpool._client.pool import Pool
from rewardpool._client.report import Report
from rewardpool._demand.handle import JointDemand
from rewardpool._rewards.blocking import BlockingReward
from rewardpool._rewards.score_noise import ScoreDtype, coarsest
from rewardpool.errors import RewardPoolError
from rewardpool_train.actor.data import read_prompts
from rewardpool_train.actor.distillation import NoReward, Teachers, open_teachers
from rewardpool_train.actor.ranks import Ranks, join_job
from rewardpool_train.actor.records import StepRecord
from rewardpool_train.actor.reporting import reporting
from rewardpool_train.actor.scoring import OutcomeTally
from rewardpool_train.actor.sharing import open_sharing
from rewardpool_train.actor.trainer import Trainer
from rewardpool_train.config import TrainConfig, load_train_config

REWARD_WINDOW_STEPS = 5  # first and last steps whose mean rewards the totals compare; fewer in short jobs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a training job and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rewardpool_train",
        description="Train a policy by a reward, with rollout, reward and update overlapped.",
        epilog="example:\n  torchrun --nproc-per-node 2 -m rewardpool_train examples/quickstart/train.yaml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "config", type=Path, help="YAML file; docs/training.md has one, rewardpool_train/config.py all fields"
    )
    parser.add_argument("--output", type=Path, help="folder for the results, instead of the config's")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for room in ("rewardpool", "rewardpool_train"):
        logging.getLogger(room).setLevel(logging.INFO)
    transformers.utils.logging.disable_progress_bar()
    try:
        config = load_train_config(given.config)
        if given.output is not None:
            config = config.model_copy(update={"output": given.output.resolve()})
        with join_job(deadline_seconds=config.step_deadline_seconds) as ranks:
            lost = train(config, ranks)
    except (RewardPoolError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if lost:
        print(f"error: {lost} samples were lost", file=sys.stderr)
    return 1 if lost else 0


def train(config: TrainConfig, ranks: Ranks) -> int:
    """Run the job's steps on this rank, write the results on rank 0, and return the samples lost on all ranks.

    Raises:
        RewardPoolError: The config is invalid, a pool cannot be used or, under the failure policy `raise`, a sample
            failed.
        TimeoutError: A step's scores did not come within the deadline.
    """
    with _open(config) as (reward, teachers):
        scorers = [] if isinstance(reward, NoReward) else [reward]
        sharing = open_sharing(config, [*scorers, *([] if teachers is None else [teachers])], ranks=ranks)
        taught = {} if teachers is None else teachers.pools
        pools = {**reward.pools, **taught}
        with _announce(reward, taught, config, ranks) as demand:
            # All ranks use what rank 0 found: a group is informative on all of them or on none.
            dtype = ranks.broadcast(score_dtype(reward.pools.values()))
            trainer = Trainer(
                config,
                ranks=ranks,
                reward=reward,
                teachers=teachers,
                demand=demand,
                sharing=sharing,
                score_dtype=dtype,
            )
            shown = reporting(
                config.output, steps=config.steps, done=trainer.steps_done, tensorboard=config.tensorboard
            )
            quiet = nullcontext(lambda record: None)
            with shown if ranks.first else quiet as on_step, _stop_on(signal.SIGTERM) as should_stop:
                records = trainer.run(on_step, should_stop=should_stop)
        reports = [pool.report() for pool in pools.values()]
        totals = summarise(records, total_tally(trainer.tally, ranks), total_retries(reports, ranks), ranks.size)
        trainer.save_policy()
        if ranks.first:
            turns = {} if sharing is None else {"colocated": dataclasses.asdict(sharing.report())}
            _write_json(config.output / "metrics.json", {"pools": list(pools), **totals, **turns})
    return int(totals["lost"])


def score_dtype(pools: Iterable[Pool]) -> ScoreDtype:
    """Return the coarsest dtype of these pools' reward models, without judges and functions, which have no logits."""
    endpoints = [pool.endpoint for pool in pools]
    return coarsest(endpoint.dtype for endpoint in endpoints if endpoint.model_type == "Discriminative")


@contextmanager
def _open(config: TrainConfig) -> Iterator[tuple[BlockingReward | NoReward, Teachers | None]]:
    with ExitStack() as stack:
        reward = NoReward() if config.reward is None else stack.enter_context(BlockingReward(config.reward))
        teachers = None
        if config.distillation is not None:
            prompts = read_prompts(config.data.prompts)
            opening = open_teachers(config.distillation, policy=config.policy.path, prompts=prompts)
            teachers = stack.enter_context(opening)
        yield reward, teachers


def _announce(
    reward: BlockingReward | NoReward, taught: Mapping[str, Pool], config: TrainConfig, ranks: Ranks
) -> JointDemand:
    """Announce the job's samples to all its pools, each in its own requests."""
    prompts, members = config.rollout.prompts_per_step, config.rollout.group_size
    requests = reward.requests(members=members)
    asked: list[tuple[Pool, int | None]]
    asked = [(pool, prompts * requests[name]) for name, pool in reward.pools.items()]
    # Which prompts of a step are whose, several teachers learn from the questions.
    asked += [(pool, prompts * members if len(taught) == 1 else None) for pool in taught.values()]
    return JointDemand(
        [pool.demand(samples=samples, steps=config.steps, rank=ranks.rank, ranks=ranks.size) for pool, samples in asked]
    )


def total_tally(tally: OutcomeTally, ranks: Ranks) -> OutcomeTally:
    """Return the tally of all ranks."""
    names = [field.name for field in dataclasses.fields(tally)]
    counts = ranks.sum(*(getattr(tally, name) for name in names))
    return OutcomeTally(**{name: int(count) for name, count in zip(names, counts, strict=True)})


def total_retries(reports: Sequence[Report], ranks: Ranks) -> int:
    """Return the number of samples on all ranks that needed more than one request, over all pools."""
    [retried] = ranks.sum(sum(report.retried for report in reports))
    return int(retried)


def summarise(records: Sequence[StepRecord], tally: OutcomeTally, retried: int, world_size: int) -> dict[str, Any]:
    """Return the contents of metrics.json: the job's totals, in samples and seconds."""
    window = max(1, min(REWARD_WINDOW_STEPS, len(records) // 2))
    return {
        "world_size": world_size,
        "steps": len(records),
        "samples": tally.submitted,
        "scored": tally.scored,
        "penalties": tally.penalties,
        "unscored": tally.unscored,
        "given_up": tally.given_up,
        "asked_again": tally.asked_again,
        "groups_asked_again": tally.groups_asked_again,
        "dropped": sum(record.dropped_samples for record in records),
        "lost": tally.lost,
        "retried": retried,
        "reward_window_steps": window,
        "reward_mean_first": _mean_reward(records[:window]),
        "reward_mean_last": _mean_reward(records[-window:]),
        "seconds": {
            "total": math.fsum(record.step_seconds for record in records),
            "rollout": math.fsum(record.rollout_seconds for record in records),
            "reward_exposed": math.fsum(record.reward_exposed_seconds for record in records),
            "update": math.fsum(record.update_seconds for record in records),
        },
    }


def _mean_reward(records: Sequence[StepRecord]) -> float | None:
    """Return the mean over all scores of the steps; None without any score."""
    scored = sum(record.scored for record in records)
    return (
        math.fsum(record.reward_mean * record.scored for record in records if record.scored) / scored
        if scored
        else None
    )


@contextmanager
def _stop_on(signal_number: signal.Signals) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether the signal was received; meanwhile the signal ends nothing by itself."""
    came = threading.Event()
    before = signal.signal(signal_number, lambda *_: came.set())
    try:
        yield came.is_set
    finally:
        signal.signal(signal_number, before)


def _write_json(path: Path, values: dict[str, Any]) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    unfinished.rename(path)  # a program that waits for the file sees all of it


if __name__ == "__main__":
    sys.exit(main())

"""Training: the models of this rank, and the pipeline that trains them.

    rollout   every rank samples responses to its prompts; each goes to the reward pool as soon as it ends
    update    for each mini-batch: wait for its groups' scores, if necessary; one optimiser step
    publish   the rollout engine gets the new weights

The config's `schedule` orders these. Rank 0 announces each to the reward pool, so that the pool is warm when samples
come. `reward_exposed_seconds` measures the time in which the actor only waited for scores, which the overlap avoids.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from rewardpool._policy.response_end import ResponseDecoder
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.score_noise import ScoreDtype
from rewardpool._score_waits import ScoreWait, ScoreWaits
from rewardpool.errors import ConfigError
from rewardpool_train.actor import checkpoint
from rewardpool_train.actor.data import Prompt, PromptOrder, Trajectory, prompt_tokens, read_prompts, to_episode
from rewardpool_train.actor.distillation import Distillation, Teaches
from rewardpool_train.actor.fsdp import FsdpActor
from rewardpool_train.actor.learner import ActorLearner, EngineRollouts
from rewardpool_train.actor.loading import end_token_ids, load_policy, load_to_shard
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.actor.records import StepFigures, StepRecord
from rewardpool_train.actor.resume import JobState, load_state
from rewardpool_train.actor.rollout import RolloutEngine, open_engine
from rewardpool_train.actor.rollout.staged import StagedEngine
from rewardpool_train.actor.scoring import OutcomeTally, Rater, RewardScore
from rewardpool_train.actor.sharing import Sharing
from rewardpool_train.actor.tokens import Forward
from rewardpool_train.advantages import has_members, is_informative
from rewardpool_train.colocated.pipeline import in_turn, share
from rewardpool_train.config import TrainConfig
from rewardpool_train.pipeline.dynamic_sampling import DynamicSampling
from rewardpool_train.pipeline.engine import Pipeline
from rewardpool_train.pipeline.on_thread import on_thread
from rewardpool_train.pipeline.parts import Announcer, GroupTask, Learner, Rollouts, Scoring
from rewardpool_train.pipeline.schedule import SCHEDULES
from rewardpool_train.pipeline.times import StepTimes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Trainer:
    """The models of this rank, and the runs of their training.

    Raises:
        ConfigError: The prompts, the policy or its tokenizer are invalid, or the work cannot be divided by the ranks.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        ranks: Ranks,
        reward: Rater,
        teachers: Teaches | None = None,
        demand: Announcer | None = None,
        sharing: Sharing | None = None,
        score_dtype: ScoreDtype = "float32",
    ) -> None:
        """Load and shard the policy, and load the newest checkpoint if there is one.

        Args:
            teachers: Give log-probabilities of the rollouts' tokens; None without distillation.
            demand: Announces rollouts and updates of this rank; None announces nothing.
            sharing: Sharing of the GPUs with pools of reward and teachers; None if these have their own.
            score_dtype: Dtype that the reward's pools compute in, unless the config sets it.
        """
        config.check_ranks(ranks.size)
        self._config = config
        self._ranks = ranks
        self._reward = reward
        self._teachers = teachers
        self._demand = demand
        self._sharing = sharing
        self._score_dtype = config.update.score_dtype or score_dtype
        self._plan = config.plan(ranks.size)
        self._prompts = PromptOrder(read_prompts(config.data.prompts), seed=config.seed)
        self._tokenizer = load_tokenizer("policy.path", config.policy.path)
        self._end_ids = end_token_ids(config.policy.path, self._tokenizer)
        self._decode = ResponseDecoder(self._tokenizer)
        self._actor = self._make_actor()
        self.tally = OutcomeTally()
        self._resume = (
            load_state(self._checkpoints, self._actor, config=config, ranks=ranks) if config.resume == "auto" else None
        )
        if self._resume is not None and self._resume.moments is not None and reward.moments is not None:
            reward.moments.restore(self._resume.moments, version=self._resume.pipeline.trained)

    @property
    def steps_done(self) -> int:
        """Number of steps in the loaded checkpoint; 0 for a new job."""
        return 0 if self._resume is None else self._resume.pipeline.trained // self._plan.minibatches_per_step

    @property
    def _checkpoints(self) -> Path:
        return self._config.output / "checkpoints"

    def _make_actor(self) -> FsdpActor:
        config, distillation = self._config, self._config.distillation
        return FsdpActor(
            load_to_shard(config.policy.path, ranks=self._ranks),
            ranks=self._ranks,
            objective=config.update.objective(
                fixed_length=config.rollout.max_new_tokens,
                distillation=0.0 if distillation is None else distillation.loss_weight,
            ),
            forward=Forward(
                pad_id=self._tokenizer.pad_token_id,
                device=self._ranks.device,
                temperature=config.rollout.temperature,
                micro_batch=config.update.micro_batch,
                pack_tokens=config.update.pack_tokens,
            ),
            learning_rate=config.update.learning_rate,
            max_grad_norm=config.update.max_grad_norm,
            max_skipped=config.update.max_skipped_updates,
            dtype=DTYPES[config.policy.dtype],
            activation_checkpointing=config.update.activation_checkpointing,
            reference=load_to_shard(config.policy.path, ranks=self._ranks) if config.update.kl else None,
        )

    def run(
        self, on_step: Callable[[StepRecord], None], *, should_stop: Callable[[], bool] = lambda: False
    ) -> list[StepRecord]:
        """Run the steps and return their records; `on_step` is called after each, on every rank.

        After each step the ranks check whether `should_stop` is true on one of them; then that step is the last.

        Raises:
            SampleError: A sample failed, and the failure policy is `raise`.
            PoolError: The pool cannot be used.
            RolloutError: The rollout engine cannot sample, or did not load new weights.
            TimeoutError: A mini-batch's scores did not come within the deadline.
        """
        with self._open_engine() as (engine, thread):
            run = _Run(self, engine, thread, on_step=on_step, should_stop=should_stop)
            asyncio.run(run.execute())
            return run.records

    def save_policy(self) -> None:
        """Write the trained policy and its tokenizer into the output folder; all ranks call this together."""
        self._actor.save_pretrained(self._config.output / "policy")
        if self._ranks.first:
            self._tokenizer.save_pretrained(self._config.output / "policy")

    @contextmanager
    def _open_engine(self) -> Iterator[tuple[RolloutEngine, Executor]]:
        with ExitStack() as stack:
            # Threads are opened first and so closed last: the engine may be busy on one.
            thread, own = (stack.enter_context(ThreadPoolExecutor(1, name)) for name in ("learner", "rollouts"))
            disaggregated = SCHEDULES[self._config.schedule].disaggregated
            engine = stack.enter_context(
                open_engine(
                    self._config,
                    ranks=self._ranks,
                    pad_id=self._tokenizer.pad_token_id,
                    end_ids=self._end_ids,
                    encode=lambda prompt: prompt_tokens(self._tokenizer, prompt),
                    load_policy=self._load_copy,
                    thread=own if disaggregated else thread,
                )
            )
            if disaggregated and self._config.rollout.engine == "transformers":
                engine = StagedEngine(engine, staging=self._load_copy(), thread=own)
            yield engine, thread

    def _load_copy(self) -> Any:
        policy = self._config.policy
        return load_policy(policy.path, dtype=DTYPES[policy.dtype]).to(self._ranks.device)

    def _prompt(self, index: int) -> Prompt:
        """Return the prompt of this rank's group: prompts are dealt to the ranks in turn."""
        return self._prompts[index * self._ranks.size + self._ranks.rank]

    def _to_episode(self, task: GroupTask[Prompt], member: int, rollout: Trajectory) -> Episode:
        return to_episode(
            task.prompt,
            self._decode(rollout.response_ids[:-1] if rollout.ended else rollout.response_ids),
            rollout,
            group=task.index,
            version=task.version,
            prompt_tail=self._decode.tail(rollout.prompt_ids),
            name=f"step{task.step + 1}-rank{self._ranks.rank}-group{task.index}-response{member}",
        )


class _Run:
    """The pipeline of one call of `Trainer.run`, and the work between its steps."""

    def __init__(
        self,
        trainer: Trainer,
        engine: RolloutEngine,
        thread: Executor,
        *,
        on_step: Callable[[StepRecord], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self._trainer = trainer
        self._thread = thread
        self._on_step = on_step
        self._should_stop = should_stop
        self.records: list[StepRecord] = []
        config, ranks = trainer._config, trainer._ranks
        schedule = SCHEDULES[config.schedule]
        by_steps = config.has_step_rewards()
        self._score = RewardScore(
            trainer._reward,
            to_episode=trainer._to_episode,
            tally=trainer.tally,
            decode=trainer._decode if by_steps else None,
        )
        self._distillation = (
            None
            if trainer._teachers is None or config.distillation is None
            else Distillation(trainer._teachers, config.distillation, tally=trainer.tally)
        )
        if trainer._resume is not None:
            self._score.restore(trainer._resume.components)
            if self._distillation is not None:
                self._distillation.restore(trainer._resume.teacher_rows)
        self._learner = ActorLearner(
            trainer._actor,
            engine,
            ranks=ranks,
            thread=thread,
            advantage_scale=config.update.advantage_scale,
            only_informative=config.update.only_informative,
            min_members=config.rollout.least_members,
            score_dtype=trainer._score_dtype,
            decoupled=bool(schedule.ahead) or schedule.disaggregated or config.has_inexact_rollouts(),
            moments=trainer._reward.moments,
            components=self._score.components,
            steps=self._score.steps if by_steps else None,
            distillation=self._distillation,
            rewarded=config.reward is not None,
        )
        self._gpu = None if trainer._sharing is None else trainer._sharing.gpu(thread)
        rollouts: Rollouts[Prompt, Trajectory]
        rollouts = EngineRollouts(engine, self._learner, ranks=ranks, thread=None if schedule.disaggregated else thread)
        self._waits = ScoreWaits(begin=time.monotonic())
        trainer._reward.record_waits(self._waits)
        if trainer._teachers is not None:
            trainer._teachers.record_waits(self._waits)
        learner: Learner[Prompt, Trajectory] = self._learner
        score = self._scoring()
        after_step: Callable[[StepTimes], Awaitable[None]] = self._after_step
        if self._gpu is not None:
            rollouts, learner, score = share(self._gpu, rollouts, learner, score)
            after_step = in_turn(self._gpu, after_step)
        self.pipeline = Pipeline(
            plan=trainer._plan,
            prompts=trainer._prompt,
            rollouts=rollouts,
            score=score,
            learner=learner,
            overlap=config.overlap(),
            sampling=self._sampling(),
            deadline_seconds=config.step_deadline_seconds,
            announcer=trainer._demand,
            waits=self._waits,
            on_step=after_step,
            resume=None if trainer._resume is None else trainer._resume.pipeline,
        )

    async def execute(self) -> None:
        """Run all steps; at the end the GPU is the trainer's."""
        async with nullcontext() if self._gpu is None else self._gpu:
            await self.pipeline.run()

    def _scoring(self) -> Scoring[Prompt, Trajectory]:
        if self._distillation is None:
            return self._score.as_scoring()
        if self._trainer._config.reward is None:
            return self._distillation.alone()
        return self._distillation.beside(self._score.as_scoring())

    def _sampling(self) -> DynamicSampling | None:
        config = self._trainer._config
        for_informative = config.update.dynamic_sampling_rounds
        least, dtype = config.rollout.least_members, self._trainer._score_dtype

        def teaches(scores: Sequence[float | None]) -> bool:
            return has_members(scores, least) and (not for_informative or is_informative(scores, dtype=dtype))

        async def most(missing: int) -> int:
            [found] = await on_thread(self._thread, self._trainer._ranks.max, missing)
            return int(found)

        rounds = for_informative or config.rollout.replacement_rounds
        return DynamicSampling(rounds=rounds, is_informative=teaches, most=most) if rounds else None

    async def _after_step(self, times: StepTimes) -> None:
        figures, self._learner.figures = self._learner.figures, StepFigures()
        figures.score_wait = self._waits.lap() or ScoreWait()
        figures.components = [part for group in figures.groups for part in self._score.pop_components(group.task)]
        for group in figures.dropped:
            self._score.pop_components(group.task)
        if self._distillation is not None:
            for group in [*figures.groups, *figures.dropped]:
                self._distillation.forget(group.task)
        record, ends = await on_thread(self._thread, self._finish_step, times, figures)
        every = self._trainer._config.checkpoint.every_steps
        if every and (record.step % every == 0 or ends):
            await on_thread(self._thread, self._save, record.step, self._state().to_json())
        self.records.append(record)
        self._on_step(record)
        if ends:
            self.pipeline.end()

    def _state(self) -> JobState:
        pipeline = self.pipeline.state()
        groups = [group.index for group in pipeline.groups]
        moments = self._trainer._reward.moments
        versions = {group.version for group in pipeline.groups}
        return JobState(
            pipeline=pipeline,
            components=self._score.to_json(groups),
            teacher_rows=[] if self._distillation is None else self._distillation.to_json(groups),
            moments=None if moments is None else moments.to_json(versions=versions),
        )

    def _finish_step(self, times: StepTimes, figures: StepFigures) -> tuple[StepRecord, bool]:
        """Return the step's record, and whether it was the last; all ranks call this together."""
        ranks = self._trainer._ranks
        trainer = self._trainer
        record = figures.record(
            times,
            ranks,
            parts=trainer._reward.names,
            min_members=trainer._config.rollout.least_members,
            score_dtype=trainer._score_dtype,
        )
        [ends] = ranks.max(self._should_stop())
        return record, bool(ends)

    def _save(self, step: int, state: checkpoint.State) -> None:
        trainer = self._trainer
        keep = trainer._config.checkpoint.keep
        checkpoint.save(trainer._checkpoints, trainer._actor, ranks=trainer._ranks, step=step, state=state, keep=keep)


def load_tokenizer(field: str, path: Any) -> Any:
    """Load a tokenizer with a chat template.

    Raises:
        ConfigError: `path` has no tokenizer, or it has no chat template; the error names `field`.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ConfigError(field, f"transformers finds no tokenizer in {path}: {error}") from error
    if tokenizer.chat_template is None:
        raise ConfigError(field, f"the tokenizer in {path} has no chat template; add a chat_template.jinja to it")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer

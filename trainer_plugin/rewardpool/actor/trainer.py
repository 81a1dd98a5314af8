"""Training, one step after another.

    rollout   every rank samples responses to its prompts; each goes to the reward pool the moment it ends
    update    for each mini-batch: wait for its groups' scores, if they are not there yet; one optimiser step
    refresh   the rollout copy gets the new weights

Each of these is told to the pool by rank 0, so that the pool is warm when the next rollout's samples come.

What the waiting costs is measured, because avoiding it is the point: `reward_exposed_seconds` is the time in which
every rollout was done and the actor had nothing left to do but wait for scores.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rewardpool.actor.data import Prompt, Rollout, prompt_tokens, read_prompts, sample_to_score, steps_of
from rewardpool.actor.fsdp import FsdpActor, RatedRollout, UpdateStats
from rewardpool.actor.groups import Group, group_advantages
from rewardpool.actor.ranks import Ranks
from rewardpool.actor.rollout import RolloutEngine
from rewardpool.actor.scoring import GroupScoring, Scorer, Tally
from rewardpool.actor.tokens import Forward, log_probs_of
from rewardpool.demand.handle import JobDemand
from rewardpool.errors import ConfigError
from rewardpool.train_config import TrainConfig

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One line of metrics.jsonl; everything is over all ranks.

    Attributes:
        step: From 1.
        reward_mean: Of the scores, NaN where there is none.
        reward_std: Their standard deviation.
        scored: Samples with a score, a constant included.
        unscored: Samples without one, which were left out of their groups.
        response_tokens_mean: Length of the responses.
        loss: Mean over the step's updates, NaN where there was none.
        clipped: Share of tokens where the clip took hold, likewise.
        grad_norm: Length of the gradient, likewise.
        step_seconds: The whole step. What the three below do not cover is ranks waiting for each other's rollouts.
        rollout_seconds: Sampling, on the slowest rank.
        reward_exposed_seconds: All rollouts were done, and the slowest rank waited for scores.
        update_seconds: Behaviour log-probabilities, forward, backward, optimiser, refresh of the rollout copy.
    """

    step: int
    reward_mean: float
    reward_std: float
    scored: int
    unscored: int
    response_tokens_mean: float
    loss: float
    clipped: float
    grad_norm: float
    step_seconds: float
    rollout_seconds: float
    reward_exposed_seconds: float
    update_seconds: float


class Stopwatch:
    """Adds up the seconds spent in its `running` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the seconds of the block."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - start


class Trainer:
    """Holds this rank's models, and runs the steps.

    Raises:
        ConfigError: The prompts, the policy or its tokenizer do not do, or the work cannot be shared by the ranks.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        ranks: Ranks,
        pool: Scorer,
        model_type: str | None,
        demand: JobDemand | None = None,
    ) -> None:
        """Load the policy and shard it.

        Args:
            config: Of the job.
            ranks: This process among its peers.
            pool: Where samples go.
            model_type: The pool's, which decides what a sample looks like.
            demand: Is told what this rank does; None announces nothing.
        """
        config.check_ranks(ranks.size)
        self._config = config
        self._ranks = ranks
        self._pool = pool
        self._demand = demand or JobDemand.silent("nobody is to be told")
        self._model_type = model_type
        self._steps = steps_of(
            read_prompts(config.data.prompts), per_step=config.rollout.prompts_per_step, seed=config.seed
        )
        self._tokenizer = load_tokenizer("policy.path", config.policy.path)
        self._reward_tokenizer = (
            load_tokenizer("reward_tokenizer", config.reward_tokenizer) if config.reward_tokenizer else self._tokenizer
        )
        self._forward = Forward(
            pad_id=self._tokenizer.pad_token_id,
            device=ranks.device,
            temperature=config.rollout.temperature,
            micro_batch=config.update.micro_batch,
            pack_tokens=config.update.pack_tokens,
        )
        self._actor = FsdpActor(
            self._load_policy(),
            ranks=ranks,
            objective=config.update.objective(fixed_length=config.rollout.max_new_tokens),
            forward=self._forward,
            learning_rate=config.update.learning_rate,
            max_grad_norm=config.update.max_grad_norm,
            dtype=DTYPES[config.policy.dtype],
            activation_checkpointing=config.update.activation_checkpointing,
            reference=self._load_policy() if config.update.kl else None,
        )
        self._engine = RolloutEngine(
            self._load_policy().to(DTYPES[config.policy.dtype]),
            self._tokenizer,
            max_new_tokens=config.rollout.max_new_tokens,
            temperature=config.rollout.temperature,
        )
        self.tally = Tally()
        """What became of this rank's samples."""

    def _load_policy(self) -> Any:
        try:
            model = AutoModelForCausalLM.from_pretrained(self._config.policy.path, dtype=torch.float32)
        except (OSError, ValueError) as error:
            raise ConfigError("policy.path", f"transformers cannot load it: {error}") from error
        return model.to(self._ranks.device)

    def run(
        self, on_step: Callable[[StepRecord], None], *, told_to_end: Callable[[], bool] = lambda: False
    ) -> list[StepRecord]:
        """Run the steps and return their records; `on_step` is called after each, on every rank.

        After each step the ranks tell each other whether one of them was told to end; then that step was the last.

        Raises:
            SampleError: A sample has no score and the failure policy is `raise`.
            PoolError: The pool cannot be used.
            TimeoutError: A step's scores did not come within the deadline.
        """
        records = []
        for step in range(1, self._config.steps + 1):
            records.append(self._step(step, next(self._steps)))
            on_step(records[-1])
            [ends] = self._ranks.max(told_to_end())
            if ends:
                break
        return records

    def save_policy(self) -> None:
        """Write the trained policy and its tokenizer into the output folder; for one rank to call."""
        self._engine.model.save_pretrained(self._config.output / "policy")
        self._tokenizer.save_pretrained(self._config.output / "policy")

    def _step(self, step: int, prompts: list[Prompt]) -> StepRecord:
        whole, rolling, updating = Stopwatch(), Stopwatch(), Stopwatch()
        with whole.running():
            mine = prompts[self._ranks.rank :: self._ranks.size]
            scoring = self._scoring(step, mine)
            self._demand.rollout()
            with rolling.running():
                rollouts = self._roll_out(step, mine, scoring)
            with updating.running():
                behaviour = self._behaviour(rollouts)
            # An update needs all ranks, so none can start before the slowest rollout is done. Meeting here costs
            # nothing, and keeps waiting for a rank from being counted as waiting for scores.
            [rollout_seconds] = self._ranks.max(rolling.seconds)
            exposed_seconds = 0.0
            groups: list[Group] = []
            updates: list[UpdateStats] = []
            for _ in range(self._config.rollout.prompts_per_step // self._config.update.groups_per_minibatch):
                with self._demand.waiting():
                    ready, slowest_seconds = self._take_minibatch(scoring)
                self._demand.update()
                exposed_seconds += slowest_seconds
                groups += ready
                with updating.running():
                    stats = self._actor.update(self._minibatch(ready, rollouts, behaviour))
                updates += [stats] if stats is not None else []
            with updating.running():
                self._actor.copy_weights_to(self._engine.model)
        return self._record(
            step,
            groups,
            rollouts,
            updates,
            step_seconds=whole.seconds,
            rollout_seconds=rollout_seconds,
            reward_exposed_seconds=exposed_seconds,
            update_seconds=updating.seconds,
        )

    def _take_minibatch(self, scoring: GroupScoring) -> tuple[list[Group], float]:
        """Wait for this rank's groups of a mini-batch, and for the other ranks to have theirs.

        Returns the groups and the seconds that the slowest rank waited.
        """
        waiting = Stopwatch()
        with waiting.running():
            ready = scoring.take(
                self._config.update.groups_per_minibatch // self._ranks.size,
                deadline_seconds=self._config.step_deadline_seconds,
            )
        [slowest_seconds] = self._ranks.max(waiting.seconds)
        return ready, slowest_seconds

    def _scoring(self, step: int, prompts: list[Prompt]) -> GroupScoring:
        def to_sample(rollout: Rollout) -> Any:
            return sample_to_score(
                prompts[rollout.group],
                self._tokenizer.decode(rollout.response_ids, skip_special_tokens=True),
                model_type=self._model_type,
                reward_tokenizer=self._reward_tokenizer,
                name=f"step{step}-rank{self._ranks.rank}-prompt{rollout.group}-response{rollout.member}",
            )

        return GroupScoring(
            self._pool,
            groups=len(prompts),
            size=self._config.rollout.group_size,
            to_sample=to_sample,
            tally=self.tally,
            order=self._config.update.order,
        )

    def _roll_out(self, step: int, prompts: list[Prompt], scoring: GroupScoring) -> list[Rollout]:
        return self._engine.generate(
            [prompt_tokens(self._tokenizer, prompt) for prompt in prompts],
            group_size=self._config.rollout.group_size,
            seed=self._config.seed + step * self._ranks.size + self._ranks.rank,
            on_end=scoring.submit,
        )

    def _behaviour(self, rollouts: list[Rollout]) -> list[torch.Tensor]:
        return log_probs_of(self._engine.model, rollouts, forward=self._forward)

    def _minibatch(
        self, groups: list[Group], rollouts: list[Rollout], behaviour: list[torch.Tensor]
    ) -> list[RatedRollout]:
        rated = []
        for group in groups:
            first = group.index * self._config.rollout.group_size
            for member, advantage in enumerate(
                group_advantages(group.scores, scale=self._config.update.advantage_scale)
            ):
                at = first + member
                rated.append(RatedRollout(rollout=rollouts[at], behaviour=behaviour[at], advantage=advantage))
        return rated

    def _record(
        self,
        step: int,
        groups: list[Group],
        rollouts: list[Rollout],
        updates: list[UpdateStats],
        **seconds: float,
    ) -> StepRecord:
        scores = [score for group in groups for score in group.scores if score is not None]
        count, total, squares, tokens, samples = self._ranks.sum(
            len(scores),
            math.fsum(scores),
            math.fsum(score**2 for score in scores),
            sum(len(rollout.response_ids) for rollout in rollouts),
            len(rollouts),
        )
        mean = total / count if count else math.nan
        return StepRecord(
            step=step,
            reward_mean=mean,
            reward_std=math.sqrt(max(0.0, squares / count - mean**2)) if count else math.nan,
            scored=int(count),
            unscored=int(samples - count),
            response_tokens_mean=tokens / samples,
            loss=_mean([update.loss for update in updates]),
            clipped=_mean([update.clipped for update in updates]),
            grad_norm=_mean([update.grad_norm for update in updates]),
            **seconds,
        )


def load_tokenizer(field: str, path: Any) -> Any:
    """Load a tokenizer that can write conversations.

    Raises:
        ConfigError: There is none in `path`, or it has no chat template or pad token; `field` is named.
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


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan

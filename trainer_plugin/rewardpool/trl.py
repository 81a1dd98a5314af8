"""TRL: a pool, or any other reward, as one of a trainer's `reward_funcs`.

import rewardpool.trl
from trl import GRPOTrainer

trainer = GRPOTrainer(model, reward_funcs=[rewardpool.trl.reward("rl/skywork")], ...)

TRL calls a reward function once with a whole batch and waits for it; an exception ends the training. None becomes NaN.
GRPO and RLOO trainers leave out a row for which every reward function gives None. Where another one gives a number, and
in all other trainers, None counts as 0. So a reward that may give None has to be the only one of such a trainer, which
is checked in the first call; several rewards become one mixture here.

The signature is that of TRL 1.16, of which GRPO and RLOO trainers await what is async; for those that do not,
`blocking=True` makes a plain function. Nothing of TRL is imported.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rewardpool._deadline import waited
from rewardpool._rewards.config import RewardLike
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.groups import groups_of
from rewardpool._rewards.lazy import LazyReward
from rewardpool._rewards.rating import Rating
from rewardpool._rewards.rows import split
from rewardpool._score_waits import ScoreWaits
from rewardpool.errors import ConfigError
from rewardpool_api.contract import FAULTS

log = logging.getLogger(__name__)

# Passed by TRL beside the data set's columns.
NOT_COLUMNS = frozenset({"trainer_state", "log_extra", "log_metric", "environments"})


def reward(
    spec: RewardLike,
    *,
    name: str | None = None,
    ground_truth: str | None = None,
    data_source: str | None = None,
    extra_info: Sequence[str] | None = None,
    blocking: bool = False,
    only_reward: bool = False,
    tokenizer: Any = None,
    **overrides: Any,
) -> "TrlReward":
    """A reward function for `reward_funcs`.

    It is async, can be pickled (`AsyncGRPOTrainer` calls it in a child process), and opens its connections when it is
    first called. `close` it, if the process goes on without it.

    Args:
        spec: As for `open_reward`: `namespace/name` of a pool, or a mapping.
        name: What TRL's metrics call it. Default: the pool's or function's name, or `rewardpool` for a mixture.
        ground_truth: The data set's column with right answers. Default: `ground_truth`, if there is one.
        data_source: The column with the data set's name. Default: `data_source`, if there is one.
        extra_info: Columns that make up `Episode.extra_info`. Default: the column `extra_info` of mappings, if there is
            one.
        blocking: Makes a plain function of it.
        only_reward: Confirms, for `AsyncGRPOTrainer`, that no other reward function is beside this one, so that rows
            may be None; there the trainer cannot be seen from here.
        tokenizer: As for `open_reward`.
        overrides: As for `open_reward`.

    Raises:
        ConfigError: A field of `spec` is wrong.
    """
    lazy = LazyReward(spec, tokenizer=tokenizer, path="trl.reward", **overrides)
    extra = None if extra_info is None else tuple(extra_info)
    columns = Columns(ground_truth=ground_truth, data_source=data_source, extra_info=extra)
    kind = BlockingTrlReward if blocking else AsyncTrlReward
    name = name or (lazy.names[0] if len(lazy.names) == 1 else "rewardpool")
    return kind(lazy, columns, name, only_reward=only_reward)


def check_none_is_left_out(further: Mapping[str, Any], *, only_reward: bool) -> None:
    """Check that the trainer leaves out a row for which this reward function gives None.

    Args:
        further: What TRL passed by name.

    Raises:
        ConfigError: It would count as 0, or that cannot be known.
    """
    # GRPO and RLOO trainers alone pass `log_metric`, a bound method of theirs; `AsyncGRPOTrainer` passes neither that
    # nor its state.
    functions = getattr(getattr(further.get("log_metric"), "__self__", None), "reward_funcs", None)
    if functions is not None:
        if len(functions) > 1:
            raise ConfigError(
                "trl.reward.on_failure",
                f"must be raise where a trainer has several reward functions (here {len(functions)}): TRL counts a"
                " failed row as 0 for this one, and may prefer it; make one mixture of them, {rewards: [...]}, in"
                " rewardpool.trl.reward",
            )
    elif further.get("trainer_state") is not None:
        raise ConfigError("trl.reward.on_failure", "must be raise with this trainer, which counts a failed row as 0")
    elif not only_reward:
        raise ConfigError(
            "trl.reward.only_reward",
            "must be true for rows to be None where the trainer cannot be seen (AsyncGRPOTrainer): beside another"
            " reward function TRL counts a failed row as 0; set it if there is no other, or make one mixture of them,"
            " {rewards: [...]}, in rewardpool.trl.reward",
        )


def generations_of(further: Mapping[str, Any]) -> int | None:
    """Return how many completions the trainer makes to a row of the data set; None where it cannot be seen.

    Args:
        further: What TRL passed by name; `log_metric` is a bound method of its trainer.
    """
    trainer = getattr(further.get("log_metric"), "__self__", None)
    training = getattr(getattr(trainer, "model", None), "training", True)
    size = getattr(trainer, "num_generations" if training else "num_generations_eval", None)
    return size if isinstance(size, int) and size > 0 else None


def groups_in(
    prompts: Sequence[Any],
    known: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Sequence[Any]],
    *,
    size: int | None,
) -> list[int]:
    """Return the number of each row's group.

    TRL's groups are so many rows in a row. Where this process has no whole groups, or their size is not known, rows are
    a group that are equal in what is known of them.

    Args:
        prompts: Shape (rows,).
        known: Further fields of the rows' episodes, shape (rows,).
        columns: Of the data set; pictures tell problems apart.
        size: Rows of a group, None where it is not known.
    """
    rows = len(prompts)
    if size is not None and rows % size == 0:
        texts = groups_of(prompts)
        if all(len(set(texts[start : start + size])) == 1 for start in range(0, rows, size)):
            return [row // size for row in range(rows)]
    pictures = (columns.get(name, [None] * rows) for name in ("image", "images"))
    return groups_of(prompts, known, *pictures)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns of the data set by their use; see `reward`."""

    ground_truth: str | None
    data_source: str | None
    extra_info: tuple[str, ...] | None

    def known(self, columns: Mapping[str, Sequence[Any]], *, rows: int) -> list[dict[str, Any]]:
        """Return the columns of each row as fields of an `Episode`. Raises ConfigError where a column is not found."""
        truths = self._column(columns, "ground_truth", self.ground_truth) or [None] * rows
        sources = self._column(columns, "data_source", self.data_source) or [""] * rows
        if self.extra_info is None:
            extras: Sequence[Any] = columns.get("extra_info", [None] * rows)
        else:
            named = {name: self._column(columns, "extra_info", name) or [] for name in self.extra_info}
            extras = [{name: values[row] for name, values in named.items()} for row in range(rows)]
        return [
            {"ground_truth": truth, "data_source": source, "extra_info": extra}
            for truth, source, extra in zip(truths, sources, extras, strict=True)
        ]

    @staticmethod
    def _column(columns: Mapping[str, Sequence[Any]], what: str, name: str | None) -> Sequence[Any] | None:
        if name is not None and name not in columns:
            has = ", ".join(sorted(columns)) or "no further ones"
            raise ConfigError(f"trl.reward.{what}", f"the data set has no column {name}; it has {has}")
        return columns.get(name or what)


class TrlReward:
    """Common part of the async and the blocking function."""

    def __init__(self, lazy: LazyReward, columns: Columns, name: str, *, only_reward: bool) -> None:
        self._lazy = lazy
        self._only_reward = only_reward
        self._columns = columns
        self._waits = ScoreWaits()
        self.__name__ = name  # by which TRL calls its metrics: rewards/NAME/mean

    def close(self) -> None:
        """Close this process's connections; the next call opens them again."""
        self._lazy.close()

    def _episodes(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None,
        further: Mapping[str, Any],
    ) -> list[Episode]:
        if self._lazy.spec.may_leave_unscored:  # before anything is scored
            check_none_is_left_out(further, only_reward=self._only_reward)
        columns = {key: value for key, value in further.items() if key not in NOT_COLUMNS}
        known = self._columns.known(columns, rows=len(prompts))
        ids = completion_ids if completion_ids is not None else [None] * len(prompts)
        groups = groups_in(prompts, known, columns, size=generations_of(further))
        return [
            Episode(**split(prompt, completion), **fields, group=group, response_ids=tokens, id=f"row {row}")
            for row, (prompt, completion, fields, group, tokens) in enumerate(
                zip(prompts, completions, known, groups, ids, strict=True)
            )
        ]

    @contextmanager
    def _announced(self, state: Any) -> Iterator[None]:
        """Announce to the pools that samples come now, and afterwards that the policy is updated."""
        steps = getattr(state, "max_steps", 0) - getattr(state, "global_step", 0)
        demands = self._lazy.announce(steps=steps if steps > 0 else None)
        self._lazy.opened().record_waits(self._waits)
        with ExitStack() as stack:
            if state is None:
                # `AsyncGRPOTrainer`'s child process, which generates all the time, in one rollout that never ends; no
                # step waits for a single group.
                for demand in demands:
                    if demand.now().phase == "Starting":
                        demand.rollout()
                demands = ()
            else:
                stack.enter_context(self._waits.waiting())
            for demand in demands:
                demand.rollout()
                stack.callback(demand.update)
                stack.enter_context(demand.waiting())
            yield

    def _rewards(self, ratings: Sequence[Rating], seconds: float, further: Mapping[str, Any]) -> list[float | None]:
        """The totals, after telling TRL's log what they are made of."""
        unscored = sum(rating.total is None for rating in ratings)
        if unscored:
            if not self._lazy.spec.may_leave_unscored:  # post_process may give None under any failure policy
                check_none_is_left_out(further, only_reward=self._only_reward)
            problem = next((str(rating.error) for rating in ratings if rating.total is None and rating.error), "")
            faults = dict(Counter(rating.error.fault for rating in ratings if rating.total is None and rating.error))
            log.warning(
                "%d of %d rows have no reward and are left out %s; first: %s", unscored, len(ratings), faults, problem
            )
        if log_metric := further.get("log_metric"):
            for metric, value in [*self._metrics(ratings, seconds), *self._step_metrics()]:
                log_metric(f"{self.__name__}/{metric}", value)
        if (log_extra := further.get("log_extra")) and len(self._lazy.names) > 1:
            for part in self._lazy.names:
                log_extra(f"{self.__name__}/{part}", [rating.components[part] for rating in ratings])
        if log_extra:
            for part in self._lazy.names:
                infos = [rating.info.get(part, {}) for rating in ratings]
                for key in dict.fromkeys(key for info in infos for key in info):
                    log_extra(f"{self.__name__}/{part}/{key}", [info.get(key) for info in infos])
        return [rating.total for rating in ratings]

    def _step_metrics(self) -> Iterator[tuple[str, float]]:
        """Shares of the step since the last call ended; none in the first call."""
        if (step := self._waits.lap()) is not None:
            for part, share in asdict(step).items():
                yield f"score_wait/{part}", share

    def _metrics(self, ratings: Sequence[Rating], seconds: float) -> Iterator[tuple[str, float]]:
        yield "seconds", seconds
        yield "unscored", float(sum(rating.total is None for rating in ratings))
        failed = Counter(rating.error.fault for rating in ratings if rating.error is not None)
        for fault in FAULTS:
            yield f"failed/{fault}", float(failed[fault])
        for part in self._lazy.names:
            scores = [score for rating in ratings if (score := rating.components[part]) is not None]
            if scores:
                yield f"{part}/mean", sum(scores) / len(scores)
        reports = [pool.report() for pool in self._lazy.opened().pools.values()]
        if reports:
            yield "retried", float(sum(report.retried for report in reports))
            yield "latency_p99_seconds", max(report.latency.p99 for report in reports)


class AsyncTrlReward(TrlReward):
    """The async form: TRL awaits it, beside the other async reward functions."""

    async def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **further: Any,
    ) -> list[float | None]:
        """Rate a batch.

        Args:
            prompts: Texts, or lists of chat messages; shape (rows,).
            completions: The same for what the policy wrote.
            completion_ids: The completions in the policy's tokens; shape (rows, tokens).
            further: The data set's columns, each of shape (rows,), and what TRL passes beside them.

        Returns:
            The rewards, shape (rows,); None for a row without one, which the trainer leaves out.

        Raises:
            SampleError: A part has no score and its policy is `raise`.
            PoolError: A pool cannot be used, whatever the policy.
            ConfigError: A column is missing, or what `check_none_is_left_out` and `open_reward` raise.
        """
        started = time.monotonic()
        episodes = self._episodes(prompts, completions, completion_ids, further)
        await asyncio.to_thread(self._lazy.opened)  # the loop is shared with other reward functions
        with waited(time.monotonic() - started), self._announced(further.get("trainer_state")):
            ratings = await self._lazy.rate_batch(episodes)
        return self._rewards(ratings, time.monotonic() - started, further)


class BlockingTrlReward(TrlReward):
    """The blocking form."""

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **further: Any,
    ) -> list[float | None]:
        """Rate a batch, as `AsyncTrlReward` does."""
        started = time.monotonic()
        episodes = self._episodes(prompts, completions, completion_ids, further)
        self._lazy.opened()
        with waited(time.monotonic() - started), self._announced(further.get("trainer_state")):
            ratings = self._lazy.rate_batch_blocking(episodes)
        return self._rewards(ratings, time.monotonic() - started, further)

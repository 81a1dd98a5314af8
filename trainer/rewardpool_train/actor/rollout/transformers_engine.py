"""Rollouts by `generate` of transformers, on an unsharded copy of the policy.

Responses of one batch end at very different times. `generate` returns when the last one does; by then most of the
scores can be back, if scoring started when each response ended. transformers calls its stopping criteria after every
token: there `EndWatcher` detects ends, and `ScoreKeeper` keeps the distribution that the newest token was drawn from.

Weights change between two batches and never within one, so a response has one version. `generate` allows nothing else:
it does not recompute, and keys and values of old weights would stay in its cache.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.rollout.engine import WeightSource
from rewardpool_train.pipeline.parts import GroupTask, OnEnd

SEED_STRIDE = 1_000_003  # between the seeds of two jobs or ranks, since groups count up from them


class ScoreKeeper(LogitsProcessor):  # type: ignore[misc]
    """Keeps the log-probabilities that each token is drawn by; `generate` calls it before each token."""

    def __init__(self, *, temperature: float) -> None:
        self._temperature = temperature
        self._newest: torch.Tensor

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Keep the logits' log-softmax, shape (rows, vocabulary), and return the logits unchanged."""
        self._newest = (scores.float() / self._temperature).log_softmax(dim=-1)
        return scores

    def log_probs(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of the tokens that were drawn, shape (rows,)."""
        return self._newest.gather(1, tokens.unsqueeze(1)).squeeze(1)


class EndWatcher(StoppingCriteria):  # type: ignore[misc]
    """Calls `on_row(row, response_ids, log_probs, ended)` when a row ends; `generate` calls it after each token.

    It stops all rows once `cancelled` is set, and none before.
    """

    def __init__(
        self,
        *,
        prompt_width: int,
        max_new_tokens: int,
        end_ids: Sequence[int],
        log_probs_of: Callable[[torch.Tensor], torch.Tensor],
        on_row: Callable[[int, list[int], list[float], bool], None],
        cancelled: threading.Event | None = None,
    ) -> None:
        self._prompt_width = prompt_width
        self._max_new_tokens = max_new_tokens
        self._end_ids = set(end_ids)
        self._log_probs_of = log_probs_of
        self._on_row = on_row
        self._cancelled = cancelled or threading.Event()
        self._running: list[int] | None = None
        self._log_probs: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Report the rows that ended with this token; `input_ids` has shape (rows, tokens so far)."""
        running = range(len(input_ids)) if self._running is None else self._running
        self._log_probs.append(self._log_probs_of(input_ids[:, -1]))
        newest = input_ids[:, -1].tolist()
        full = input_ids.shape[1] - self._prompt_width >= self._max_new_tokens
        # Rows that ended earlier are padded, and the pad can be the end token: so only running rows are checked.
        over = [row for row in running if full or newest[row] in self._end_ids]
        self._running = [row for row in running if row not in set(over)]
        if over:
            log_probs = torch.stack([step[over] for step in self._log_probs], dim=1).tolist()
            for row, values in zip(over, log_probs, strict=True):
                self._on_row(row, input_ids[row, self._prompt_width :].tolist(), values, newest[row] in self._end_ids)
        stops = self._cancelled.is_set()
        return torch.full((len(input_ids),), stops, dtype=torch.bool, device=input_ids.device)


class TransformersEngine:
    """Samples from an unsharded copy of the policy.

    Args:
        encode: Returns the token ids that the policy continues.
        seed: The same seed, weights and tasks give the same responses; each rank has its own seed.
        thread: Runs one call at a time; `generate` is called there.
    """

    def __init__(
        self,
        model: Any,
        *,
        pad_id: int,
        end_ids: Sequence[int],
        encode: Callable[[Prompt], Sequence[int]],
        max_new_tokens: int,
        temperature: float,
        seed: int,
        thread: Executor,
    ) -> None:
        self.model = model.eval()
        # `generate` uses the model's own config for unset options: a repetition penalty, for example, is in no loss.
        self.model.generation_config = GenerationConfig()
        self.version = 0
        self._encode = encode
        self._seed = seed
        self._thread = thread
        self._pad_id = pad_id
        self._end_ids = list(end_ids)
        self._max_new_tokens = max_new_tokens
        self._temperature = temperature
        self._sampling = GenerationConfig(
            do_sample=True,
            temperature=temperature,
            # The loss assumes that tokens were sampled from the policy's probabilities. The default top-k of 50 would
            # silently break that.
            top_k=0,
            top_p=1.0,
            max_new_tokens=max_new_tokens,
            pad_token_id=self._pad_id,
            eos_token_id=self._end_ids,
        )

    async def roll_out(self, tasks: Sequence[GroupTask[Prompt]], on_end: OnEnd[Prompt, Trajectory]) -> None:
        """Sample every member of every task in one batch, on the thread, which calls `on_end`.

        If cancelled, it returns after the current token.
        """
        cancelled = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(self._thread, self.generate, tasks, on_end, cancelled)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.wait([work])
            raise

    def generate(
        self,
        tasks: Sequence[GroupTask[Prompt]],
        on_end: OnEnd[Prompt, Trajectory],
        cancelled: threading.Event | None = None,
    ) -> None:
        """Sample every member of every task; return when all have ended.

        Args:
            tasks: Groups; the first index decides the seed of the batch.
            on_end: Called with each rollout as soon as it ends, while others continue; it should not block.
            cancelled: Set it to stop all rollouts that have not ended.
        """
        rows = [(task, member) for task in tasks for member in range(task.size)]
        prompts = [ids for task in tasks for ids in [list(self._encode(task.prompt))] * task.size]

        def on_row(row: int, response_ids: list[int], log_probs: list[float], ended: bool) -> None:
            task, member = rows[row]
            rollout = Trajectory(
                group=task.index,
                member=member,
                prompt_ids=prompts[row],
                response_ids=response_ids,
                ended=ended,
                version=self.version,
                log_probs=log_probs,
            )
            on_end(task, member, rollout)

        torch.manual_seed(self._seed * SEED_STRIDE + tasks[0].index)
        self._sample(prompts, on_row, cancelled)

    def load(self, source: WeightSource, version: int) -> None:
        """Copy the source's current weights; all ranks call this together, while nothing is sampled.

        Under `fully_async`, `StagedEngine` ensures that.
        """
        source.copy_weights_to(self.model)
        self.version = version

    def _sample(
        self,
        prompts: Sequence[Sequence[int]],
        on_row: Callable[[int, list[int], list[float], bool], None],
        cancelled: threading.Event | None,
    ) -> None:
        width = max(len(prompt) for prompt in prompts)
        padded = [[self._pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        keeper = ScoreKeeper(temperature=self._temperature)
        watcher = EndWatcher(
            prompt_width=width,
            max_new_tokens=self._max_new_tokens,
            end_ids=self._end_ids,
            log_probs_of=keeper.log_probs,
            on_row=on_row,
            cancelled=cancelled,
        )
        with torch.no_grad():
            self.model.generate(
                input_ids=torch.tensor(padded, device=self.model.device),
                attention_mask=torch.tensor(mask, device=self.model.device),
                generation_config=self._sampling,
                logits_processor=LogitsProcessorList([keeper]),
                stopping_criteria=StoppingCriteriaList([watcher]),
            )

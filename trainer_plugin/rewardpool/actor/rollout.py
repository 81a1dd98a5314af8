"""Rollouts: what the policy answers, each answer handed over the moment it ends.

Responses of one batch end at very different times. `generate` returns when the last one does; by then most of the
scores can be back, if scoring started when each response ended. transformers asks its stopping criteria after every
token, which is the place to notice an end: `EndWatcher` never stops anything, it only watches.

The weights are those of an unsharded copy that the trainer refreshes after each update, as a rollout engine of its own
would get them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from rewardpool.actor.data import Rollout

OnEnd = Callable[[Rollout], None]


class EndWatcher(StoppingCriteria):  # type: ignore[misc]
    """Called by `generate` after each token; calls `on_row(row, response_ids, ended)` once per row, when it ends."""

    def __init__(
        self,
        *,
        prompt_width: int,
        max_new_tokens: int,
        end_ids: Sequence[int],
        on_row: Callable[[int, list[int], bool], None],
    ) -> None:
        self._prompt_width = prompt_width
        self._max_new_tokens = max_new_tokens
        self._end_ids = set(end_ids)
        self._on_row = on_row
        self._running: list[int] | None = None

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Report the rows that ended with this token; `input_ids` has shape (rows, tokens so far)."""
        running = range(len(input_ids)) if self._running is None else self._running
        newest = input_ids[:, -1].tolist()
        full = input_ids.shape[1] - self._prompt_width >= self._max_new_tokens
        # Rows that ended earlier are padded on, and the pad can be the end token: so only the running ones are asked.
        over = [row for row in running if full or newest[row] in self._end_ids]
        self._running = [row for row in running if row not in set(over)]
        for row in over:
            self._on_row(row, input_ids[row, self._prompt_width :].tolist(), newest[row] in self._end_ids)
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


class RolloutEngine:
    """Samples from an unsharded copy of the policy."""

    def __init__(self, model: Any, tokenizer: Any, *, max_new_tokens: int, temperature: float) -> None:
        self.model = model.eval()
        self._pad_id: int = tokenizer.pad_token_id
        self._end_ids = [tokenizer.eos_token_id]
        self._max_new_tokens = max_new_tokens
        self._sampling = GenerationConfig(
            do_sample=True,
            temperature=temperature,
            # The loss takes the policy's probabilities to be those that were sampled from. The default top-k of 50
            # would make that untrue, silently.
            top_k=0,
            top_p=1.0,
            max_new_tokens=max_new_tokens,
            pad_token_id=self._pad_id,
            eos_token_id=self._end_ids,
        )

    def generate(self, prompts: Sequence[Sequence[int]], *, group_size: int, seed: int, on_end: OnEnd) -> list[Rollout]:
        """Sample `group_size` responses to each prompt and return them in the order of the prompts.

        Args:
            prompts: Token ids, shape (prompts, tokens of that prompt).
            group_size: Responses to each prompt.
            seed: The same seed and weights give the same responses.
            on_end: Called with each rollout as soon as it ends, while the others go on; it should not block.
        """
        width = max(len(prompt) for prompt in prompts)
        rows = [prompt for prompt in prompts for _ in range(group_size)]
        padded = [[self._pad_id] * (width - len(prompt)) + list(prompt) for prompt in rows]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in rows]
        ended: dict[int, Rollout] = {}

        def on_row(row: int, response_ids: list[int], by_itself: bool) -> None:
            group, member = divmod(row, group_size)
            ended[row] = Rollout(
                group=group, member=member, prompt_ids=rows[row], response_ids=response_ids, ended=by_itself
            )
            on_end(ended[row])

        watcher = EndWatcher(
            prompt_width=width, max_new_tokens=self._max_new_tokens, end_ids=self._end_ids, on_row=on_row
        )
        torch.manual_seed(seed)
        with torch.no_grad():
            self.model.generate(
                input_ids=torch.tensor(padded, device=self.model.device),
                attention_mask=torch.tensor(mask, device=self.model.device),
                generation_config=self._sampling,
                stopping_criteria=StoppingCriteriaList([watcher]),
            )
        return [ended[row] for row in range(len(rows))]

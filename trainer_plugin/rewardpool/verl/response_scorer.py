"""Scores one response of verl's by a reward; the reward manager and the agent loop do it in this one way."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rewardpool._policy.response_end import ResponseDecoder
from rewardpool._policy.steps import at_tokens
from rewardpool._policy.turns import PolicyTurns
from rewardpool._rewards import OpenReward
from rewardpool._rewards.episode import Message
from rewardpool._rewards.together import BatchedWork, or_error
from rewardpool.errors import ConfigError, SampleError, ScoreError
from rewardpool.verl.result import score_and_extra_info
from rewardpool.verl.rollout import SINGLE_TURN, beside_prompt, episode, medium
from rewardpool.verl.whole_groups import Member

# Token ids of a response, and of its prompt.
_Tokens = tuple[list[int], Sequence[int] | None]


@dataclass(frozen=True)
class VerlScore:
    """Result of one response for verl."""

    score: float
    # verl's `reward_extra_info`, with the same names for every sample.
    extra_info: dict[str, Any]
    steps: tuple[tuple[int, float], ...] | None = None
    """With supervision process: the token of the response in which each step ends, from 0, and the step's reward."""


class ResponseScorer:
    """A reward that knows the policy's tokens."""

    def __init__(
        self, reward: OpenReward, tokenizer: Any, *, max_response_tokens: int | None, info: Sequence[str] = ()
    ) -> None:
        """A response of `max_response_tokens` or more was cut off, if it does not end by itself."""
        self._info = tuple(info)
        self.reward = reward
        self._text = ResponseDecoder(tokenizer)
        self._decoding: BatchedWork[_Tokens, tuple[str, str | None]] = BatchedWork(
            self._decode, what="the policy's tokenizer"
        )
        self._tokenizer = tokenizer
        self._max_response_tokens = max_response_tokens

    async def score(
        self,
        others: Mapping[str, Any],
        token_ids: list[int],
        *,
        prompt_ids: Sequence[int] | None = None,
        member: Member | None = None,
    ) -> VerlScore | SampleError:
        """Return the reward with what verl logs of it, or under the failure policy `skip` why there is none.

        Args:
            others: What verl has of the sample beside its tensors: a row's `non_tensor_batch`.
            token_ids: The response in the policy's tokens, without padding.
            prompt_ids: The end of its prompt in the policy's tokens; None where that is not known.
            member: What it is of its group, where the group's scores are held until all are there; None where each is
                handed on at once.

        Raises:
            SampleError: It has no score, and the failure policy is `raise`.
            PoolError: A pool cannot be used.
            ConfigError: The reward needs whole groups, the trainer left the prompt's messages out, there are pictures
                that the reward would have to look at, or turns that cannot be told apart.
        """
        self._check_text(others)
        response, prompt_tail = await self._decoding.result((token_ids, prompt_ids))
        # A thread costs more than it gives where there is nothing to do.
        has_turns = self._reader is not None and int(others.get("__num_turns__") or 0) > SINGLE_TURN
        rated = episode(
            others,
            response,
            token_ids,
            prompt_tail=prompt_tail,
            turns=await asyncio.to_thread(self._turns, token_ids) if has_turns else None,
            max_tokens=self._max_response_tokens,
            eos=self._tokenizer.eos_token_id,
        )
        if member is None:
            rating = await self.reward.rate_next(rated)
        else:
            rating = await member.settled(self.reward, rated, await self.reward.rate(rated))
        if rating.total is None:
            return rating.error or ScoreError(rated.label, "is unscored")
        score, extra_info = score_and_extra_info(rating, label=rated.label, info=self._info)
        steps = (
            None if rating.steps is None else await asyncio.to_thread(at_tokens, rating, rated, token_ids, self._text)
        )
        return VerlScore(score, extra_info, None if steps is None else tuple(steps))

    def _decode(self, given: Sequence[_Tokens]) -> list[tuple[str, str | None] | Exception]:
        return [or_error(partial(self._texts, *one)) for one in given]

    def _texts(self, token_ids: Sequence[int], prompt_ids: Sequence[int] | None) -> tuple[str, str | None]:
        return self._text(token_ids), None if prompt_ids is None else self._text.tail(prompt_ids)

    @property
    def _reader(self) -> str | None:
        """The first pool whose model reads responses."""
        return next((name for name, pool in self.reward.pools.items() if pool.endpoint.model_type != "Function"), None)

    def _turns(self, token_ids: list[int]) -> list[Message]:
        reader = self._reader
        text = PolicyTurns(self._tokenizer)
        if (word := text.medium(token_ids)) is not None:
            raise ConfigError(
                "actor_rollout_ref.rollout.multi_turn",
                f"a response has {word} in it, from a tool that shows pictures or the like, and {reader} would be sent"
                " words alone; score by functions (reward.rewardpool.function, or a Function pool)",
            )
        turns = text.split(token_ids)
        if len(turns) == 1:
            raise ConfigError(
                "actor_rollout_ref.model.path",
                f"responses have several turns, which the chat template there does not tell apart, so {reader} would"
                " read what tools say as the policy's own words; set another template, or score by functions",
            )
        return list(turns)

    def _check_text(self, others: Mapping[str, Any]) -> None:
        readers = [
            name
            for name, pool in self.reward.pools.items()
            if pool.endpoint.model_type not in ("Function", "Generative")
        ]
        if readers and (found := medium(others)) is not None:
            raise ConfigError(
                f"data.{found}_key",
                f"rows have content of type {found}, and {readers[0]} is sent text alone, with a placeholder in its"
                " place; score by functions (reward.rewardpool.function, or a Function pool), or leave such rows out",
            )
        judges = [name for name, pool in self.reward.pools.items() if pool.endpoint.model_type == "Generative"]
        if judges and (found := beside_prompt(others)) is not None:
            raise ConfigError(
                f"data.{found}_key",
                f"rows have more content of type {found} than the messages of their prompt show, so {judges[0]} would"
                " be sent a placeholder; have it in the messages as blocks, as verl's own data set does, or score by"
                " functions",
            )

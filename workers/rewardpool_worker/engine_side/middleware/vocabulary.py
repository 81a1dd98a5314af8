"""Token ids that a model lacks: kept from engines, which would end, or give a score that no model gave."""

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

from rewardpool_worker.engine_side.middleware.asgi import Scope
from rewardpool_worker.engine_side.middleware.errors import InvalidRequestError
from rewardpool_worker.engine_side.middleware.requests import Sample


def vocabulary_size(scope: Scope) -> int | None:
    """Return how many tokens the engine's model has, from the state of its application; None where it is not there."""
    state = getattr(scope.get("app"), "state", None)
    vllm = getattr(state, "vllm_config", None)
    # vLLM keeps its whole configuration there, our launcher of SGLang the number alone.
    size = vllm.model_config.get_vocab_size() if vllm is not None else getattr(state, "vocabulary_size", None)
    return size or None


class WiderTokenizer:
    """vLLM's tokenizer, where it has token ids that the model lacks.

    Authors add a token, such as [PAD], and do not always resize the model. vLLM bounds token ids by the larger of both:
    such a token gets one of the rows that pad its weights, and the text a score that no model gave, or the engine ends.
    """

    def __init__(self, tokenizer: Any) -> None:
        # The engine uses its own in a thread of its own, and a tokenizer is not for two at a time.
        self._tokenizer = copy.deepcopy(tokenizer)
        self._turn = asyncio.Lock()

    @classmethod
    def find(cls, scope: Scope, size: int) -> "WiderTokenizer | None":
        """Return the tokenizer of an application's engine; None where it has no tokens beyond the model's `size`."""
        client = getattr(getattr(scope.get("app"), "state", None), "engine_client", None)
        tokenizer = getattr(getattr(client, "renderer", None), "tokenizer", None)
        return cls(tokenizer) if getattr(tokenizer, "max_token_id", -1) >= size else None

    async def tokens(self, samples: Sequence[Sample]) -> list[list[int]]:
        """Return the token ids of each sample; those of a text that it cannot read are [], for the engine to refuse."""
        async with self._turn:
            return await asyncio.to_thread(lambda: [self._encode(sample) for sample in samples])

    def _encode(self, sample: Sample) -> list[int]:
        if isinstance(sample, list):
            return sample
        try:
            return list(self._tokenizer.encode(sample))
        except (TypeError, ValueError):
            return []


def refuse_beyond_vocabulary(samples: Sequence[Sample], size: int) -> None:
    """Keep token ids that the model lacks from the engine: SGLang's process dies of one.

    Raises:
        InvalidRequestError: the text names the token id and its sample.
    """
    for index, sample in enumerate(samples):
        if isinstance(sample, list) and (largest := max(sample, default=0)) >= size:
            raise InvalidRequestError(f"input {index} has the token id {largest}, the model has 0 to {size - 1}")

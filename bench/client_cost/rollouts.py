"""Finished rollouts as verl's agent loop hands them to a reward worker, with a tokenizer of words to write them in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tokenizers
import torch
import transformers
from tensordict import TensorDict
from verl import DataProto

WORDS: Final = 1000
END: Final = WORDS
PROMPT: Final = [number % WORDS for number in range(180)]
PROMPT_TEXT: Final = " ".join(f"w{number:03d}" for number in PROMPT)
RESPONSE_WORDS: Final = 100
CONVERSATION_WORDS: Final = len(PROMPT) + RESPONSE_WORDS
CONVERSATION_CHARACTERS: Final = 5 * CONVERSATION_WORDS - 1
"""A word is four characters and a blank: 1.4 kB, of which the score is the length."""


def save_tokenizer(folder: Path) -> None:
    """Write a tokenizer that is the policy's and the reward model's: `w000` to `w999`, each a token."""
    vocabulary = {f"w{number:03d}": number for number in range(WORDS)} | {"<end>": END, "<pad>": END + 1}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<end>",
        pad_token="<pad>",
        chat_template="{{ messages | map(attribute='content') | map('trim') | join(' ') }}",
    )
    made.save_pretrained(folder)


def rollouts(numbers: Sequence[int], *, service_ms: int) -> DataProto:
    """One row for each number, all of the same length, in the form in which verl's agent loop asks for their scores."""
    responses = torch.tensor([response(number) for number in numbers], dtype=torch.int64)
    prompts = torch.tensor([PROMPT], dtype=torch.int64).repeat(len(numbers), 1)
    input_ids = torch.cat([prompts, responses], dim=1)
    tensors = {
        "prompts": prompts,
        "responses": responses,
        "attention_mask": torch.ones_like(input_ids),
        "input_ids": input_ids,
        "position_ids": torch.arange(input_ids.shape[1]).repeat(len(numbers), 1),
    }
    others = columns(service_ms=service_ms) | {
        "__num_turns__": 2,
        "tool_extra_fields": {},
        "prompt_len": len(PROMPT),
        "response_len": responses.shape[1],
    }
    return DataProto(
        batch=TensorDict(tensors, batch_size=len(numbers)),
        non_tensor_batch={name: _column(value, len(numbers)) for name, value in others.items()},
    )


def response(number: int) -> list[int]:
    """A response in tokens, and its end."""
    return [*((number + place) % WORDS for place in range(RESPONSE_WORDS)), END]


def columns(*, service_ms: int) -> dict[str, Any]:
    """A row of the data set; the constant function is told the service time by it."""
    return {
        "raw_prompt": [{"role": "user", "content": PROMPT_TEXT}],
        "data_source": "bench",
        "reward_model": {"ground_truth": "7", "style": "rule"},
        "extra_info": {"index": 0, "service_ms": service_ms},
        "uid": "group-1",
    }


def _column(value: Any, rows: int) -> Any:
    column = np.empty(rows, dtype=object)
    column[:] = [value] * rows
    return column

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
PROMPT_WORDS: Final = 180
RESPONSE_WORDS: Final = 100
CONVERSATION_CHARACTERS: Final = 5 * (PROMPT_WORDS + RESPONSE_WORDS) - 1
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
    """One row for each number, all of the same length; the constant function is told the service time by them."""
    prompt = [number % WORDS for number in range(PROMPT_WORDS)]
    rows = [[*((number + place) % WORDS for place in range(RESPONSE_WORDS)), END] for number in numbers]
    responses = torch.tensor(rows, dtype=torch.int64)
    prompts = torch.tensor([prompt], dtype=torch.int64).repeat(len(rows), 1)
    input_ids = torch.cat([prompts, responses], dim=1)
    tensors = {
        "prompts": prompts,
        "responses": responses,
        "attention_mask": torch.ones_like(input_ids),
        "input_ids": input_ids,
        "position_ids": torch.arange(input_ids.shape[1]).repeat(len(rows), 1),
    }
    text = " ".join(f"w{number:03d}" for number in prompt)
    others: dict[str, Any] = {
        "raw_prompt": [{"role": "user", "content": text}],
        "data_source": "bench",
        "reward_model": {"ground_truth": "7", "style": "rule"},
        "extra_info": {"index": 0, "service_ms": service_ms},
        "uid": "group-1",
        "__num_turns__": 2,
        "tool_extra_fields": {},
        "prompt_len": PROMPT_WORDS,
        "response_len": RESPONSE_WORDS + 1,
    }
    return DataProto(
        batch=TensorDict(tensors, batch_size=len(rows)),
        non_tensor_batch={name: _column(value, len(rows)) for name, value in others.items()},
    )


def _column(value: Any, rows: int) -> Any:
    column = np.empty(rows, dtype=object)
    column[:] = [value] * rows
    return column

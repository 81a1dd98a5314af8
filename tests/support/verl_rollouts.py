"""What writes in tests of verl's agent loops: generation needs a GPU, so the responses are made up."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from support import tiny_policy
from verl.utils import tensordict_utils
from verl.workers.rollout.replica import TokenOutput


class FakeLlmServerClient:
    """Stands for verl's `LLMServerClient` and the servers behind it: says a prompt's digits again, and ends."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_of_verl: Any) -> TokenOutput:
        """The response to a prompt of digits."""
        return TokenOutput(token_ids=[*prompt_ids, tiny_policy.END], log_probs=None, stop_reason="completed")


def save_policy(folder: Path) -> Path:
    """Save what verl's agent loop worker reads of a policy: a config and the tokenizer that writes digits."""
    # Of a Qwen's tokenizer verl expects words of its own.
    transformers.LlamaConfig(vocab_size=12, architectures=["LlamaForCausalLM"]).save_pretrained(folder)
    tiny_policy.make_tokenizer().save_pretrained(folder)
    return folder


def prompts_of(digits: Sequence[str], *, seconds: float = 0.0) -> dict[str, Any]:
    """Rows of a data set, a prompt of digits each, in columns: what verl's data loader gives."""
    columns = {
        "raw_prompt": [[{"role": "user", "content": text}] for text in digits],
        "data_source": ["digits"] * len(digits),
        "reward_model": [{"ground_truth": "7", "style": "rule"} for _ in digits],
        "extra_info": [{"index": number, "seconds": seconds} for number in range(len(digits))],
        "uid": [f"group-{number}" for number in range(len(digits))],
        "index": list(range(len(digits))),
    }
    return {name: _objects(values) for name, values in columns.items()}


def prompts_for_v1(digits: Sequence[str], *, step: int, seconds: float = 0.0) -> Any:
    """The same as the TensorDict that verl's v1 trainers give to their agent loop manager."""
    batch = tensordict_utils.get_tensordict(prompts_of(digits, seconds=seconds))
    tensordict_utils.assign_non_tensor_data(batch, "global_steps", step)
    return batch


def _objects(values: Sequence[Any]) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array

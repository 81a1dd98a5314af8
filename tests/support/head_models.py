"""Makes tiny models for declared heads, and what transformers computes with them; run with the servers' Python.

    python head_models.py FOLDER

`prm/` is a process reward model of Qwen's class (two labels per token behind two layers), `lm/` a language model with
the tokens yes and no. Both are random, with weights large enough that scores differ. `expected.json` has for TEXTS what
transformers computes in fp32: of `prm` the two logits of every step, of `lm` the logits of no and of yes.
"""

import json
import sys
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import save_file

STEP = "<extra_0>"
TEXTS = (
    f"2 + 2{STEP} = 4{STEP}",
    f"one step{STEP}",
    STEP,
    f"Größe → ≈ 日本{STEP}{STEP}",
    f"{'step by step ' * 20}{STEP}and so on{STEP}",
)


def tokenizer() -> Any:
    """One token per byte, and three more."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_tokens(["yes", "no"])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|endoftext|>",
        eos_token="<|end|>",
        additional_special_tokens=[STEP],
        clean_up_tokenization_spaces=False,
    )


def shape(words: Any) -> dict[str, Any]:
    """Two layers of 64 units."""
    return {
        "vocab_size": len(words),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
        "pad_token_id": words.pad_token_id,
        "eos_token_id": words.eos_token_id,
        "bos_token_id": None,
    }


def widened(module: Any) -> Any:
    """The module with larger weights, in evaluation mode."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(4)
    return module.eval()


@torch.no_grad()
def process_reward_model(folder: Path, words: Any) -> list[list[list[float]]]:
    """Save it; returns per text the two logits of each step."""
    config = transformers.Qwen2Config(**shape(words), num_labels=2)
    body = widened(transformers.Qwen2Model(config))
    head = widened(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)))
    words.save_pretrained(folder)
    saved = {f"model.{name}": tensor for name, tensor in body.state_dict().items()}
    saved |= {f"score.{name}": tensor for name, tensor in head.state_dict().items()}
    save_file({name: tensor.contiguous() for name, tensor in saved.items()}, folder / "model.safetensors")
    said = {**config.to_dict(), "architectures": ["Qwen2ForProcessRewardModel"]}
    (folder / "config.json").write_text(json.dumps(said, default=str))
    found = []
    for text in TEXTS:
        ids = words(text, return_tensors="pt").input_ids
        logits = head(body(ids).last_hidden_state[0])
        found.append(logits[ids[0] == words.convert_tokens_to_ids(STEP)].tolist())
    return found


@torch.no_grad()
def language_model(folder: Path, words: Any) -> list[list[float]]:
    """Save it; returns per text the logits of no and of yes after it."""
    model = widened(transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape(words))))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    asked = words.convert_tokens_to_ids(["no", "yes"])
    return [model(words(text, return_tensors="pt").input_ids).logits[0, -1, asked].tolist() for text in TEXTS]


def main(folder: Path) -> None:
    """Make both, and write what is expected of them."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    words = tokenizer()
    expected = {
        "texts": TEXTS,
        "prm": process_reward_model(folder / "prm", words),
        "lm": language_model(folder / "lm", words),
    }
    (folder / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Makes a tiny model of a class, and scores samples with it as transformers does; run with the servers' Python.

    python tiny_models.py make CLASS FOLDER
    python tiny_models.py score FOLDER SAMPLES SCORES

A sample is a text or a list of token ids; SAMPLES and SCORES are JSON lists. All is computed in fp32.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "quickstart"))

MAX_POSITIONS = 1024
HEAD_DIM = 32


def shape(words: Any) -> dict[str, Any]:
    """Two layers of 64 units."""
    return {
        "vocab_size": len(words),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": False,
        "pad_token_id": words.pad_token_id,
        "eos_token_id": words.eos_token_id,
        "bos_token_id": None,
        "num_labels": 1,
    }


def extra(kind: str) -> dict[str, Any]:
    """What a class's configuration needs beyond the shape."""
    if kind == "Gemma2":
        # Published checkpoints have both names of the activation; SGLang reads the older one.
        return {"head_dim": HEAD_DIM, "query_pre_attn_scalar": HEAD_DIM, "hidden_act": "gelu_pytorch_tanh"}
    return {"head_dim": HEAD_DIM} if kind in ("Qwen3", "Mistral") else {}


def make(kind: str, folder: Path) -> None:
    """Save a random reward model with one label, its weights large enough that scores differ."""
    from models import make_tokenizer

    torch.manual_seed(7)
    words = make_tokenizer()
    config = getattr(transformers, f"{kind}Config")(**shape(words), **extra(kind))
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.08)
    model.save_pretrained(folder)
    words.save_pretrained(folder)


@torch.no_grad()
def scores(folder: Path, samples: list[str | list[int]]) -> list[float]:
    """The raw logit of each sample, scored alone."""
    torch.set_num_threads(1)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    # An engine scores after the last token of a text; transformers would pass over padding tokens at its end.
    model.config.pad_token_id = None
    words = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [sample if isinstance(sample, list) else words(sample).input_ids for sample in samples]
    return [float(model(torch.tensor([one])).logits[0, 0]) for one in ids]


def main(command: str, *given: str) -> None:
    """Do what the command line says."""
    if command == "make":
        kind, folder = given
        make(kind, Path(folder))
        return
    folder, samples, out = given
    Path(out).write_text(json.dumps(scores(Path(folder), json.loads(Path(samples).read_text()))))


if __name__ == "__main__":
    main(*sys.argv[1:])

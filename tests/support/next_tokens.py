"""What transformers would write next, in fp32; run with the servers' Python.

    python next_tokens.py MODEL QUESTIONS.json ANSWERS.json

QUESTIONS has conversations. ANSWERS has for each its token ids in the model's chat template, up to where an answer
begins, and the logarithms of the probabilities of the TOP likeliest tokens, by token.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

TOP = 40
"""Twice as many as an engine is asked for, so that what it ranks last is here too."""


@torch.no_grad()
def main(folder: str, questions: Path, answers: Path) -> None:
    """Answer all of them, one at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for messages in json.loads(questions.read_text()):
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        best = model(ids).logits[0, -1].log_softmax(-1).topk(TOP)
        tokens = [tokenizer.decode([token]) for token in best.indices.tolist()]
        found.append({"ids": ids[0].tolist(), "next": dict(zip(tokens, best.values.tolist(), strict=True))})
    answers.write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))

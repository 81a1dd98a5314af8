"""What a model answers to every sum, and how many it gets right: before the training and after it."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from arithmetic import compute_score
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = Path(__file__).with_name("prompts.jsonl")
MAX_NEW_TOKENS = 24
"""As in train.yaml."""
DTYPE = torch.bfloat16
"""As in train.yaml: so small a model learns its sums with the rounding that it samples by, and loses some without."""


@dataclass(frozen=True)
class Answer:
    """The likeliest answer to one prompt."""

    prompt: str
    response: str
    right: bool


def answers(folder: Path) -> list[Answer]:
    """Ask the model in a folder every sum, without chance."""
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPE).eval()
    prompts = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    turns = [[{"role": "user", "content": prompt["prompt"]}] for prompt in prompts]
    encoded = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        written = model.generate(
            **encoded, max_new_tokens=MAX_NEW_TOKENS, do_sample=False, pad_token_id=tokenizer.pad_token_id
        )
    responses = tokenizer.batch_decode(written[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True)
    return [
        Answer(prompt["prompt"], response.strip(), is_right(prompt, response))
        for prompt, response in zip(prompts, responses, strict=True)
    ]


def is_right(prompt: dict[str, Any], response: str) -> bool:
    """Ask the pool's own function, here."""
    score = compute_score(prompt["data_source"], response, prompt["ground_truth"], {})
    return asyncio.run(score) == 1.0

"""Makes the example's policy: it writes a product or a sum of x and a digit, seldom the right one, or hostile code.

Its bytes, its shape and its chat are those of the quick start's models.
"""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from answers import HOSTILE
from models import IGNORED, POLICY_BATCH, POLICY_LEARNING_RATE, conversation, make_tokenizer, model_config

OUT = Path("/var/tmp/rewardpool/expressions/policy")
PROMPTS = Path(__file__).with_name("prompts.jsonl")
STEPS = 400
SEED = 31
HOSTILE_SHARE = 0.25
ASKED_SHARE = 0.25
"""Of the other answers, those with the digit of the question."""


def answer(rng: random.Random, asked: int) -> str:
    """Return what the policy may write before it has learned what is right."""
    if rng.random() < HOSTILE_SHARE:
        return rng.choice(HOSTILE)
    digit = asked if rng.random() < ASKED_SHARE else rng.randint(2, 9)
    return rng.choice((f"{digit} * x", f"x * {digit}", f"x + {digit}"))


def chats(tokenizer: transformers.PreTrainedTokenizerFast, rng: random.Random) -> Iterator[str]:
    """Yield a batch of conversations."""
    prompts = [json.loads(line) for line in PROMPTS.read_text().splitlines()]
    for prompt in rng.choices(prompts, k=POLICY_BATCH):
        yield conversation(tokenizer, prompt["prompt"], answer(rng, prompt["ground_truth"]))


def make(out: Path) -> None:
    """Train the policy, which takes half a minute, and write it to a folder."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rng, tokenizer = random.Random(SEED), make_tokenizer()
    model: Any = transformers.Qwen2ForCausalLM(model_config(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=POLICY_LEARNING_RATE, weight_decay=0.0)
    for _ in range(STEPS):
        batch = tokenizer(list(chats(tokenizer, rng)), padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.generation_config = transformers.GenerationConfig(
        do_sample=True, top_k=0, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id
    )
    shutil.rmtree(out, ignore_errors=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)

"""Makes the quick start's two models on the spot: no hub, no download, the same on every machine.

A tokenizer of single bytes, and two Qwen2 transformers of 64 hidden units that share it:

- `reward-model` gives a response **the share of its characters that are vowels**, a number from 0 to 1 that a reader
  can check by eye. It is a regression model trained for some seconds on random strings, so it is a little off; how
  much is measured on strings that it has not seen, printed, and kept in `models.json`.
- `policy` writes words of random letters, of random lengths. About a sixth of its characters are vowels; training it
  against the reward model raises that.

Both are built again only when this file or the libraries behind it change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import string
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

DEFAULT_OUT = Path("/var/tmp/rewardpool/quickstart")
MAX_POSITIONS = 1024
SEED = 20

# The pad is named <|endoftext|> because Qwen2's tokenizer class would add that token, one past the last embedding.
PAD, END, USER, ASSISTANT = "<|endoftext|>", "<|end|>", "<|user|>", "<|assistant|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
IGNORED = -100  # cross entropy leaves positions with this label out

REWARD_STEPS, REWARD_BATCH, REWARD_LEARNING_RATE = 500, 24, 3e-3
POLICY_STEPS, POLICY_BATCH, POLICY_LEARNING_RATE = 120, 32, 3e-3
HELD_OUT = 512  # strings the fit is measured on

Advance = Callable[[], None]


def make_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer with one token per byte and one for each role of a chat."""
    # The alphabet is a set: sorted, or every build would number the bytes differently.
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bytes_only = tokenizers.models.BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[])
    backend = tokenizers.Tokenizer(bytes_only)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def model_config(tokenizer: transformers.PreTrainedTokenizerFast, **extra: Any) -> transformers.Qwen2Config:
    """Return the shape both models have: 2 layers of 64 units, about 0.1 million weights."""
    return transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=False,
        # Without a pad token the reward head cannot tell where a sequence of a batch ends.
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        **extra,
    )


def vowel_share(text: str) -> float:
    """Return what the reward model is to learn: vowels per character, 0.0 for the empty text."""
    return sum(letter in "aeiouAEIOU" for letter in text) / max(len(text), 1)


def random_words(rng: random.Random, *, characters: int, vowels: float) -> str:
    """Return `characters` random characters; one in six ends a word, and a share `vowels` of the letters are vowels."""
    consonants = [letter for letter in string.ascii_lowercase if letter not in "aeiou"]

    def character() -> str:
        if rng.random() < 1 / 6:
            return " "
        return rng.choice("aeiou" if rng.random() < vowels else consonants)

    return "".join(character() for _ in range(characters))


def random_response(rng: random.Random) -> str:
    """Return a text of any kind that the policy may write on its way: words, single letters repeated, or noise."""
    characters = rng.randint(1, 48)
    kind = rng.random()
    if kind < 0.7:
        return random_words(rng, characters=characters, vowels=rng.random())
    if kind < 0.85:
        few = rng.sample(string.ascii_lowercase + " ", k=rng.randint(1, 4))
        return "".join(rng.choices(few, k=characters))
    return "".join(rng.choices(string.ascii_letters + string.digits + string.punctuation + " ", k=characters))


def conversation(tokenizer: transformers.PreTrainedTokenizerFast, prompt: str, response: str) -> str:
    """Return the text that stands for one prompt and its response."""
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
    return tokenizer.apply_chat_template(turns, tokenize=False)


def rated_texts(
    tokenizer: transformers.PreTrainedTokenizerFast, rng: random.Random, count: int
) -> tuple[list[str], torch.Tensor]:
    """Return `count` texts and their rewards, float32 of shape (count, 1); one text in five is bare, without a chat."""
    texts, rewards = [], []
    for _ in range(count):
        response = random_response(rng)
        prompt = random_words(rng, characters=rng.randint(4, 24), vowels=rng.random())
        texts.append(response if rng.random() < 0.2 else conversation(tokenizer, prompt, response))
        rewards.append(vowel_share(response))
    return texts, torch.tensor(rewards).unsqueeze(1)


def train_reward_model(tokenizer: transformers.PreTrainedTokenizerFast, advance: Advance) -> tuple[Any, dict[str, Any]]:
    """Return the reward model and how well it does on texts it has not seen."""
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    model = transformers.Qwen2ForSequenceClassification(model_config(tokenizer, num_labels=1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=REWARD_LEARNING_RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=REWARD_LEARNING_RATE, total_steps=REWARD_STEPS)
    for _ in range(REWARD_STEPS):
        texts, rewards = rated_texts(tokenizer, rng, REWARD_BATCH)
        scores = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        torch.nn.functional.mse_loss(scores, rewards).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        advance()
    return model, measure_fit(model.eval(), tokenizer)


@torch.no_grad()
def measure_fit(model: Any, tokenizer: transformers.PreTrainedTokenizerFast) -> dict[str, Any]:
    """Return the reward model's mean absolute error and correlation on texts of another seed."""
    texts, rewards = rated_texts(tokenizer, random.Random(SEED + 1), HELD_OUT)
    scores = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    correlation = torch.corrcoef(torch.cat([scores, rewards], dim=1).T)[0, 1]
    return {
        "reward": "share of the response's characters that are vowels",
        "held_out_texts": HELD_OUT,
        "mean_absolute_error": round((scores - rewards).abs().mean().item(), 4),
        "correlation": round(correlation.item(), 4),
    }


def train_policy(tokenizer: transformers.PreTrainedTokenizerFast, advance: Advance) -> Any:
    """Return a policy that answers any prompt with 8 to 48 characters of random words, and then stops."""
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    model = transformers.Qwen2ForCausalLM(model_config(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=POLICY_LEARNING_RATE, weight_decay=0.0)
    for _ in range(POLICY_STEPS):
        batch = tokenizer(list(chats(tokenizer, rng, POLICY_BATCH)), padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        advance()
    # The sampling of a rollout is the trainer's choice; a model that brings its own (top-k 50) would bend it.
    model.generation_config = transformers.GenerationConfig(
        do_sample=True, top_k=0, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id
    )
    return model


def chats(tokenizer: transformers.PreTrainedTokenizerFast, rng: random.Random, count: int) -> Iterator[str]:
    """Yield conversations whose answers are letters drawn evenly from the alphabet: 5 of 26 are vowels."""
    for _ in range(count):
        prompt = random_words(rng, characters=rng.randint(4, 24), vowels=0.4)
        yield conversation(tokenizer, prompt, random_words(rng, characters=rng.randint(8, 48), vowels=5 / 26))


def fingerprint() -> str:
    """Return a hash of everything that decides what is built."""
    versions = f"{torch.__version__} {transformers.__version__} {tokenizers.__version__}"
    return hashlib.sha256(Path(__file__).read_bytes() + versions.encode()).hexdigest()


def built(out: Path) -> dict[str, Any] | None:
    """Return what an earlier run recorded, or None if `out` holds nothing or something else."""
    record = out / "models.json"
    if not record.is_file() or not all((out / name / "config.json").is_file() for name in ("reward-model", "policy")):
        return None
    found: dict[str, Any] = json.loads(record.read_text())
    return found if found.get("fingerprint") == fingerprint() else None


def build(out: Path, console: Console) -> dict[str, Any]:
    """Train both models and put them into `out`; the record comes last, so a killed build does not look like one."""
    tokenizer = make_tokenizer()
    steps = TextColumn("{task.completed}/{task.total}")
    with Progress(
        TextColumn("{task.description}"), BarColumn(), steps, TimeElapsedColumn(), console=console
    ) as progress:
        reward_bar = progress.add_task("reward model", total=REWARD_STEPS)
        policy_bar = progress.add_task("policy      ", total=POLICY_STEPS)
        reward_model, fit = train_reward_model(tokenizer, lambda: progress.advance(reward_bar))
        policy = train_policy(tokenizer, lambda: progress.advance(policy_bar))
    out.mkdir(parents=True, exist_ok=True)
    (out / "models.json").unlink(missing_ok=True)
    for name, model in (("reward-model", reward_model), ("policy", policy)):
        partial = out / f"{name}.partial.{os.getpid()}"
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        shutil.rmtree(out / name, ignore_errors=True)
        partial.rename(out / name)
    record = {"fingerprint": fingerprint(), "reward_model": fit}
    (out / "models.json").write_text(json.dumps(record, indent=2) + "\n")
    return record


def main() -> int:
    """Build the models unless they are there, and say how good the reward model is."""
    parser = argparse.ArgumentParser(description="Make the quick start's reward model and policy.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder to put them in (%(default)s)")
    out = parser.parse_args().out
    console = Console(stderr=True)
    torch.set_num_threads(1)  # sums come out the same however many cores there are, and layers this small gain nothing
    transformers.utils.logging.disable_progress_bar()
    record = built(out)
    if record is None:
        record = build(out, console)
    fit = record["reward_model"]
    console.print(f"models in {out}: the reward is the {fit['reward']}", soft_wrap=True)
    error, correlation = fit["mean_absolute_error"], fit["correlation"]
    console.print(f"fit on {fit['held_out_texts']} new texts: mean absolute error {error}, correlation {correlation}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

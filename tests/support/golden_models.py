"""Makes a tiny model of each class of reward model, with golden file and manifest: `python golden_models.py FOLDER`.

Run by the servers' interpreter (`make golden`). FOLDER/CLASS has `model/`, `golden.jsonl` with what transformers gives
in float32, each text alone, and `pool.yaml` that serves it, so that this verifies an engine:

    rewardpool up -f FOLDER/CLASS/pool.yaml --detach
    rewardpool verify -f FOLDER/CLASS/pool.yaml --golden FOLDER/CLASS/golden.jsonl
"""

import json
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from support.custom_head import expected, token_ids, write_checkpoint
from support.head_models import STEP, TEXTS, language_model, process_reward_model, shape, tokenizer, widened

ONE_LABEL = {"qwen2": "Qwen2", "qwen3": "Qwen3", "llama": "Llama", "mistral": "Mistral", "gemma2": "Gemma2"}
WEIGHTS = [0.5, -1.0, 2.0]
ON_VLLM = {
    "name": "vllm",
    "dtype": "float32",
    "maxModelLen": 1024,
    "args": ["--enforce-eager", "--distributed-executor-backend", "uni"],
    "env": {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"},
}
BY_ITS_OWN_CODE = {"name": "transformers", "dtype": "float32"}

Scored = list[tuple[str, float]]


def texts() -> list[str]:
    """Of many kinds, the same on every machine; all of them fit into the models."""
    chance = random.Random(11)
    letters = "abcdefghij KLMNO,.!?0123456789\n\täöü日本😀"
    drawn = ["".join(chance.choices(letters, k=chance.randint(1, 200))) for _ in range(24)]
    return ["ok", "The sky is blue.", "2 + 2 = 5.", " ", "x" * 500, "日本語のテキスト", "a\x00b", *drawn]


def classifier(folder: Path, words: Any, family: str, weights: Sequence[float]) -> Scored:
    """A sequence classifier with a label for each weight; returns the weighted raw logits."""
    size = {**shape(words), **({"head_dim": 32} if family in ("Qwen3", "Gemma2") else {})}
    config = getattr(transformers, f"{family}Config")(**size, num_labels=len(weights))
    model = widened(getattr(transformers, f"{family}ForSequenceClassification")(config))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    scored = []
    with torch.no_grad():
        for text in texts():
            logits = model(words(text, return_tensors="pt").input_ids).logits[0].tolist()
            scored.append((text, sum(weight * logit for weight, logit in zip(weights, logits, strict=True))))
    return scored


def steps(folder: Path, words: Any) -> Scored:
    """A process reward model; returns the mean probability of the second label over the steps."""
    found = process_reward_model(folder, words)
    shares = [torch.tensor(logits).softmax(-1)[:, 1].mean().item() for logits in found]
    return list(zip(TEXTS, shares, strict=True))


def log_odds(folder: Path, words: Any) -> Scored:
    """A language model; returns the logit of yes less that of no."""
    return [(text, yes - no) for text, (no, yes) in zip(TEXTS, language_model(folder, words), strict=True)]


def own_code(folder: Path, _: Any) -> Scored:
    """A model that only its own code scores; returns what that is, worked out without it."""
    folder.rmdir()
    write_checkpoint(folder)
    return [(text, expected(token_ids(text))) for text in texts()]


def main(out: Path) -> None:
    """Make all of them; a class that is there is made anew."""
    torch.set_num_threads(1)
    words = tokenizer()
    makers: dict[str, tuple[Callable[[Path, Any], Scored], dict[str, Any], dict[str, Any]]] = {
        name: (lambda folder, words, family=family: classifier(folder, words, family, [1.0]), {}, ON_VLLM)
        for name, family in ONE_LABEL.items()
    }
    three = {"head": {"type": "Classifier", "weights": WEIGHTS}}
    makers["three-labels"] = (lambda folder, words: classifier(folder, words, "Llama", WEIGHTS), three, ON_VLLM)
    process = {"head": {"type": "TokenLevel", "stepToken": STEP, "aggregate": "mean"}}
    makers["process-reward"] = (steps, process, ON_VLLM)
    makers["yes-no"] = (log_odds, {"head": {"type": "LMHead", "yesToken": "yes", "noToken": "no"}}, ON_VLLM)
    makers["own-code"] = (own_code, {"trustRemoteCode": True}, BY_ITS_OWN_CODE)
    for name, (make, model, engine) in makers.items():
        torch.manual_seed(7)
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "model").mkdir(parents=True)
        scored = make(folder / "model", words)
        lines = [json.dumps({"text": text, "score": score}, ensure_ascii=False) for text, score in scored]
        (folder / "golden.jsonl").write_text("\n".join(lines) + "\n")
        source = f"file://{(folder / 'model').resolve()}"
        manifest = {
            "apiVersion": "rewardpool.dev/v1alpha1",
            "kind": "RewardPool",
            "metadata": {"name": name, "namespace": "golden"},
            "spec": {"model": {"source": source, **model}, "engine": engine, "worker": {"gpus": 0}},
        }
        (folder / "pool.yaml").write_text(json.dumps(manifest, indent=2) + "\n")
        values = [score for _, score in scored]
        print(f"{folder}: {len(scored)} texts, scores from {min(values):.4f} to {max(values):.4f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

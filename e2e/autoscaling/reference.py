"""Texts for the quick start's reward model, and the scores that transformers gives them.

    python e2e/autoscaling/reference.py MODEL FILE

FILE gets a JSON list of {"text", "score"}. The texts' shares of vowels are evenly spaced, so that no two scores are
near each other: another text's score would be seen to be one.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

CHARACTERS = 24


def responses() -> list[str]:
    """Responses with 0, 1, 2 … vowels."""
    return [("ae" * CHARACTERS)[:vowels] + ("st" * CHARACTERS)[: CHARACTERS - vowels] for vowels in range(CHARACTERS)]


def main(model_path: Path, out: Path) -> None:
    """Score the texts and write them down."""
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(model_path, dtype=torch.float32).eval()
    asked = {"role": "user", "content": "Write something."}
    texts = [
        tokenizer.apply_chat_template([asked, {"role": "assistant", "content": response}], tokenize=False)
        for response in responses()
    ]
    batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    with torch.no_grad():
        scores = model(**batch).logits[:, 0].tolist()
    out.write_text(json.dumps([{"text": text, "score": score} for text, score in zip(texts, scores, strict=True)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

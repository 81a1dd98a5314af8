"""Two tiny reward models whose tokenizers differ, and what transformers says they give: `python checkpoints.py FOLDER`.

FOLDER gets the models `a` and `b`, and `truth.json`: {"a": {label: score}, "b": …, "crossed": …}, the last one with the
scores that model b gives to conversations in the tokens of model a.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

REPOSITORY = Path(__file__).parents[2]
sys.path += [str(REPOSITORY / "e2e"), str(REPOSITORY / "examples" / "quickstart")]

rating = importlib.import_module("two_models.rating")
models = importlib.import_module("models")  # of the quick start, which is no package

TEMPLATE_OF_B = (
    "{% for message in messages %}<|end|><|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
)


def tokenizers() -> dict[str, Any]:
    """Return the tokenizers by the model's name: the same words in other tokens."""
    made = {"a": models.make_tokenizer(), "b": models.make_tokenizer()}
    made["b"].chat_template = TEMPLATE_OF_B
    return made


def write(folder: Path) -> None:
    """Make the models, and write down what they say."""
    transformers.utils.logging.disable_progress_bar()
    words, made = tokenizers(), {}
    for seed, (name, tokenizer) in enumerate(words.items()):
        torch.manual_seed(seed)
        config = models.model_config(tokenizer, num_labels=1, initializer_range=0.2)
        made[name] = transformers.Qwen2ForSequenceClassification(config).eval()
        made[name].save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    truth = {name: scores(made[name], tokenizer) for name, tokenizer in words.items()}
    truth["crossed"] = scores(made["b"], words["a"])
    (folder / "truth.json").write_text(json.dumps(truth))


def scores(model: Any, tokenizer: Any) -> dict[str, float]:
    """Return what a model says of every episode, written by a tokenizer."""
    found = {}
    for prompt, response, label in rating.episodes():
        text = tokenizer.apply_chat_template(rating.conversation(prompt, response), tokenize=False)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.no_grad():
            found[label] = float(model(input_ids=ids).logits[0, 0])
    return found


if __name__ == "__main__":
    write(Path(sys.argv[1]))

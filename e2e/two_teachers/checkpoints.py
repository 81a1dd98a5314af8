"""Two tiny language models, and what transformers says of some sequences: `python checkpoints.py FOLDER`.

FOLDER gets the models, and `sequences.json`: teacher -> [{"ids": token ids, "logprobs": of all but the first}, …].
"""

import importlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path += [str(Path(__file__).parents[2] / "examples" / "quickstart")]

models = importlib.import_module("models")  # of the quick start, which is no package

TEACHERS = ("maths", "code")
SEQUENCES = 100
"""Of each teacher."""
LENGTHS = (8, 128)


def write(folder: Path) -> None:
    """Make the models, and write down what they say."""
    transformers.utils.logging.disable_progress_bar()
    tokenizer, found = models.make_tokenizer(), {}
    for seed, name in enumerate(TEACHERS):
        torch.manual_seed(seed)
        model = transformers.Qwen2ForCausalLM(models.model_config(tokenizer, initializer_range=0.2)).eval()
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        found[name] = answers(model, random.Random(seed), vocabulary=len(tokenizer))
    (folder / "sequences.json").write_text(json.dumps(found))


def answers(model: Any, random: random.Random, *, vocabulary: int) -> list[dict[str, Any]]:
    """Return sequences of random tokens with their log-probabilities."""
    found = []
    for _ in range(SEQUENCES):
        ids = [random.randrange(vocabulary) for _ in range(random.randint(*LENGTHS))]
        with torch.no_grad():
            logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1].float(), dim=-1)
        own = logprobs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        found.append({"ids": ids, "logprobs": own.tolist()})
    return found


if __name__ == "__main__":
    write(Path(sys.argv[1]))

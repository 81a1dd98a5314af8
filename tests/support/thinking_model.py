"""Makes a SmolLM2 that thinks before it answers, as a folder: run by a Python with torch and safetensors.

Two tokens that it does not need become `<think>` and `</think>`, its chat template opens the thoughts, and where it
would write a full stop or end its turn it ends them: so thoughts are some words of its own, of a length that only it
decides.
"""

import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

SPARE = {"<filename>": "<think>", "<gh_stars>": "</think>"}
SHARE = 0.65
"""Of each of the two tokens in whose place the end of thoughts is written: together more than either alone."""
EMBEDDINGS = "model.embed_tokens.weight"
"""Of words read and, because SmolLM2 ties them, of words written."""


def make(source: Path, out: Path) -> None:
    """Write the model into a folder."""
    shutil.copytree(source, out)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for token in tokenizer["added_tokens"]:
        if (name := SPARE.get(token["content"])) is not None:
            vocabulary[name] = vocabulary.pop(token["content"], token["id"])
            token.update(content=name, special=False)
    (out / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = (source / "tokenizer_config.json").read_text()
    template = (source / "chat_template.jinja").read_text()
    for spare, name in SPARE.items():
        settings = settings.replace(spare, name)
    (out / "tokenizer_config.json").write_text(settings)
    opening = "<|im_start|>assistant\n"
    assert opening in template
    (out / "chat_template.jinja").write_text(template.replace(opening, f"{opening}<think>\nThe answer"))

    weights = load_file(out / "model.safetensors")
    rows = weights[EMBEDDINGS]
    rows[vocabulary["</think>"]] = SHARE * (rows[vocabulary["."]] + rows[vocabulary["<|im_end|>"]])
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))

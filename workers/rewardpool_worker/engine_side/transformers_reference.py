"""Scores texts by transformers in float32, each alone: for `rewardpool verify --transformers` and `make golden`.

    python rewardpool_worker.zip transformers_reference --model PATH < TEXTS > SCORES

Both are JSON lines: `{"text": "..."}` in, and out, in the same order and each as soon as it is there, the same with
`score`, or with `problem` where the model does not take the text. Neither batches nor a server are involved.
"""

import argparse
import json
import logging
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from rewardpool_worker.engine_side.transformers_model import ModelRefusedError, UnusableSampleError, load

EXIT_REFUSED = 1


def main(argv: Sequence[str]) -> int:
    """Score what standard input has; returns the exit code."""
    parser = argparse.ArgumentParser(description="Score texts by transformers in float32.")
    parser.add_argument("--model", required=True, help="a folder, or a repository of the hub")
    parser.add_argument("--revision", help="of the repository")
    parser.add_argument("--device", default="cpu", help="such as cuda:1 (%(default)s)")
    parser.add_argument("--max-model-len", type=int, help="longest text in tokens")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the checkpoint's own code")
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="rewardpool-modules-") as modules:
        os.environ.setdefault("HF_MODULES_CACHE", modules)  # read when transformers is imported
        try:
            model = load(
                given.model,
                revision=given.revision,
                dtype="float32",
                trust_remote_code=given.trust_remote_code,
                max_model_len=given.max_model_len,
                device=given.device,
            )
        except (ModelRefusedError, OSError, ValueError) as error:
            print(f"model refused: {error}", file=sys.stderr)
            return EXIT_REFUSED
        for line in sys.stdin:
            text = json.loads(line)["text"]
            try:
                found = outcome(model, text)
            except UnusableSampleError as error:
                found = {"problem": str(error)}
            print(json.dumps({"text": text, **found}), flush=True)
    return 0


def outcome(model: Any, text: str) -> dict[str, float | str]:
    """The score of a text, or the problem with it."""
    ids = model.encode(text)
    if len(ids) > model.max_model_len:
        return {"problem": f"it has {len(ids)} tokens, and the model takes at most {model.max_model_len}"}
    score = model.score_alone(ids)
    return {"score": score} if math.isfinite(score) else {"problem": f"the model scored {score}"}

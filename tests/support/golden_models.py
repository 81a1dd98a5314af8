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
from pathlib import Path

from support.custom_head import expected, token_ids, write_checkpoint
from support.env_vars import env_vars
from support.tiny_models import CLASSES, STEP, make, score

ON_VLLM = {
    "name": "vllm",
    "dtype": "float32",
    "maxModelLen": 1024,
    "args": ["--enforce-eager", "--distributed-executor-backend", "uni"],
    "env": env_vars({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}),
}
BY_ITS_OWN_CODE = {"name": "transformers", "dtype": "float32"}
OWN_CODE = "own-code"


def texts() -> list[str]:
    """Of many kinds, the same on every machine; all of them have a step, and fit into the models."""
    chance = random.Random(11)
    letters = "abcdefghij KLMNO,.!?0123456789\n\täöü日本😀"
    drawn = ["".join(chance.choices(letters, k=chance.randint(1, 200))) for _ in range(24)]
    given = ["ok", "The sky is blue.", "2 + 2 = 5.", " ", "x" * 500, "日本語のテキスト", "a\x00b", *drawn]
    return [f"{text}{STEP} so{STEP}" for text in given]


def main(out: Path) -> None:
    """Make all of them; a class that is there is made anew."""
    for name in (*(name for name in CLASSES if name != "generative"), OWN_CODE):
        folder = out / name.lower()
        shutil.rmtree(folder, ignore_errors=True)
        model = folder / "model"
        if name == OWN_CODE:
            folder.mkdir(parents=True)
            write_checkpoint(model)
            values = [expected(token_ids(text)) for text in texts()]
            said, engine = {"trustRemoteCode": True}, BY_ITS_OWN_CODE
        else:
            make(name, model)
            values = [item["embedding"][0] for item in score(name, model, texts())]
            said, engine = ({"head": head} if (head := CLASSES[name].head) else {}), ON_VLLM
        pairs = zip(texts(), values, strict=True)
        lines = [json.dumps({"text": text, "score": value}, ensure_ascii=False) for text, value in pairs]
        (folder / "golden.jsonl").write_text("\n".join(lines) + "\n")
        manifest = {
            "apiVersion": "rewardpool.dev/v1alpha1",
            "kind": "RewardPool",
            "metadata": {"name": folder.name, "namespace": "golden"},
            "spec": {"model": {"source": f"file://{model.resolve()}", **said}, "engine": engine, "worker": {"gpus": 0}},
        }
        (folder / "pool.yaml").write_text(json.dumps(manifest, indent=2) + "\n")
        print(f"{folder}: {len(values)} texts, scores from {min(values):.4f} to {max(values):.4f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Checkpoints of a tiny reward model whose own code scores it, and what they score: both without torch.

A tokenizer of single bytes, weights from a seed, `modeling_gated.py` as the code that comes with them.
"""

import json
import random
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CODE = Path(__file__).with_name("modeling_gated.py")
HIDDEN = 8
SPECIAL = ["<|pad|>", "<|reward|>"]
PAD, REWARD = 256, 257
VOCABULARY = 256 + len(SPECIAL)
MAX_MODEL_LEN = 512


def write_checkpoint(folder: Path, *, kind: str = "gated", without: Collection[str] = (), **config: Any) -> Path:
    """Make a checkpoint, without these weights; `config` is merged over config.json."""
    folder.mkdir(parents=True)
    shutil.copy(CODE, folder)
    module = CODE.stem
    described = {
        "architectures": ["GatedRewardModel"],
        "auto_map": {
            "AutoConfig": f"{module}.GatedConfig",
            "AutoModelForSequenceClassification": f"{module}.GatedRewardModel",
        },
        "model_type": "tiny-gated",
        "kind": kind,
        "hidden_size": HIDDEN,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": MAX_MODEL_LEN,
        "pad_token_id": PAD,
        "reward_token_id": REWARD,
        "dtype": "float32",
        **config,
    }
    (folder / "config.json").write_text(json.dumps(described))
    kept = {name: tensor for name, tensor in weights().items() if name not in without}
    _write_safetensors(folder / "model.safetensors", kept)
    _write_tokenizer(folder)
    return folder


def weights() -> dict[str, Any]:
    """float32, the same on every machine."""
    chance = random.Random(7)

    def matrix(rows: int) -> Any:
        return np.array([[chance.gauss(0, 1) for _ in range(HIDDEN)] for _ in range(rows)], dtype=np.float32)

    return {"embed.weight": matrix(VOCABULARY), "objectives.weight": matrix(3), "gate.weight": matrix(3)}


def token_ids(text: str) -> list[int]:
    """As the tokenizer does it."""
    symbols = _byte_symbols()
    order = {symbol: index for index, symbol in enumerate(sorted(symbols.values()))}
    return [order[symbols[byte]] for byte in text.encode()]


def expected(ids: Sequence[int], *, last_position: bool = False) -> float:
    """What the model scores, worked out in float64."""
    given = {name: matrix.astype(np.float64) for name, matrix in weights().items()}
    pooled = given["embed.weight"][list(ids)].mean(0) + (given["embed.weight"][ids[-1]] if last_position else 0)
    rewards, gate = given["objectives.weight"] @ pooled, given["gate.weight"] @ pooled
    shares = np.exp(gate - gate.max())
    return float((rewards * shares / shares.sum()).sum())


def _byte_symbols() -> dict[int, str]:
    """One printable character for each byte, as byte-level tokenizers have them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def _write_tokenizer(folder: Path) -> None:
    vocabulary = {symbol: index for index, symbol in enumerate(sorted(_byte_symbols().values()))}
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": 256 + number, "content": token, **flags} for number, token in enumerate(SPECIAL)]
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    whole = {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": bytes_only}
    whole |= {"post_processor": None, "decoder": bytes_only, "truncation": None, "padding": None, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<|pad|>"}
    settings |= {"additional_special_tokens": SPECIAL, "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _write_safetensors(path: Path, tensors: dict[str, Any]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        end = len(data) + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), end]}
        data += tensor.tobytes()
    described = json.dumps(header).encode()
    path.write_bytes(len(described).to_bytes(8, "little") + described + data)

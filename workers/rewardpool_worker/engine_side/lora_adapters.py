"""LoRA adapters of a reward model, for the launchers of vLLM and SGLang: what is in their files, or a refusal in words.

Engines look an adapter's layers up by name and copy their numbers into buffers of the largest rank. So without a word
vLLM leaves out a layer that the base lacks, and takes a layer of a smaller model for a part of its own; and it takes
the base's head where an adapter announces one that is not in its file. Each would be a score that no model gave. This
file reads the adapters and the shapes of the base's weights first, and refuses with the adapter's name what would score
something else. It is mounted into stock images next to the launchers, and needs the standard library; where an adapter
or its base is on a hub and not downloaded yet, as on one machine, also huggingface_hub, which both engines bring.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewardpool_api.names import ENV_ADAPTERS, ENV_MODEL_PATH

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
HEAD = "score"
PREFIX = "base_model.model."
# Other values change the base's weights, or what is done with the matrices: PiSSA, OLoRA, CorDA, LoftQ, DoRA and their
# like.
HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "use_dora": (False,),
    "lora_bias": (False,),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
    "alora_invocation_tokens": (None,),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "use_qalora": (False,),
}

Shape = tuple[int, ...]


class AdapterError(ValueError):
    """An adapter cannot be served as what it is; the text has its name and says what to do."""


@dataclass(frozen=True)
class Adapter:
    """Contents of an adapter's folder."""

    name: str
    path: str
    config: Mapping[str, Any]
    shapes: Mapping[str, Shape]


Flags = Callable[[Sequence[Adapter], Mapping[str, Shape], Sequence[str]], list[str]]
"""From adapters, the shapes of their base's weights and an engine's flags so far to further flags of the engine."""


def adapters_or_refuse(argv: Sequence[str], flags: Flags) -> list[str] | None:
    """The flags by which an engine serves the adapters of REWARDPOOL_ADAPTERS, none without any.

    Args:
        argv: the engine's flags so far.
        flags: how the engine takes adapters; raises AdapterError for one that it does not.

    Returns:
        None where one of them would not be scored as what it is: why is on standard error, in the words that the
        diagnosis of a worker that ended looks for.
    """
    given = json.loads(os.environ.get(ENV_ADAPTERS, "[]"))
    if not given:
        return []
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--revision")
    known, _ = parser.parse_known_args(list(argv))
    try:
        base = shapes_of(_folder(os.environ[ENV_MODEL_PATH], known.revision))
        found = [_read(one) for one in given]
        for adapter in found:
            check(adapter, base)
        return flags(found, base, argv)
    except AdapterError as error:
        print(f"model refused: {error}", file=sys.stderr)
        return None


def vllm_flags(adapters: Sequence[Adapter], base: Mapping[str, Shape], argv: Sequence[str]) -> list[str]:
    """The flags of vLLM for these, whatever their base and its other flags; pure.

    Raises:
        AdapterError: a rank is larger than vLLM takes.
    """
    del base, argv
    rank = max(shape[0] for one in adapters for name, shape in one.shapes.items() if name.endswith(".lora_A.weight"))
    if rank > VLLM_RANKS[-1]:
        raise AdapterError(f"an adapter has the rank {rank}, and vLLM takes at most {VLLM_RANKS[-1]}")
    return [
        "--enable-lora",
        # vLLM 0.32 scores samples of several adapters in one batch wrongly, without a word: one sample at a time.
        *("--max-num-seqs", "1"),
        *("--max-loras", str(len(adapters))),
        *("--max-lora-rank", str(next(most for most in VLLM_RANKS if most >= rank))),
        "--lora-modules",
        *(json.dumps({"name": adapter.name, "path": adapter.path}) for adapter in adapters),
    ]


def check(adapter: Adapter, base: Mapping[str, Shape]) -> None:
    """See that engines score by all of an adapter and by nothing else; pure.

    Args:
        base: shapes of the base's weights, by their names.

    Raises:
        AdapterError: it would not.
    """
    config, said = adapter.config, f"the adapter {adapter.name}"
    if config.get("peft_type") != "LORA":
        raise AdapterError(f"{said} is of the type {config.get('peft_type')}: only LORA is served")
    for field, values in HARMLESS.items():
        if (value := config.get(field)) is not None and value not in values:
            raise AdapterError(
                f"{said} has {field} {value!r} in its adapter_config.json, which engines do not compute: merge it into "
                "its base and serve that as a pool of its own"
            )
    _check_head(adapter, base)
    matrices: dict[str, dict[str, Shape]] = {}
    for tensor, shape in adapter.shapes.items():
        if tensor == f"{PREFIX}{HEAD}.weight":
            continue
        match = re.fullmatch(re.escape(PREFIX) + r"(.+)\.lora_([AB])\.weight", tensor)
        if match is None or match[1] == HEAD:
            raise AdapterError(
                f"{said} has the tensor {tensor}, which is neither a LoRA matrix of a layer nor the head {HEAD}: "
                "engines would leave it out; merge it into its base and serve that as a pool of its own"
            )
        matrices.setdefault(match[1], {})[match[2]] = shape
    for layer, pair in matrices.items():
        weight = base.get(f"{layer}.weight")
        if weight is None:
            raise AdapterError(f"{said} changes {layer}, which its base has no weight of: is it of another model?")
        a, b = pair.get("A", ()), pair.get("B", ())
        if len(a) != 2 or len(b) != 2 or a[0] != b[1] or (b[0], a[1]) != tuple(weight):
            raise AdapterError(
                f"{said} has matrices of {list(a)} and {list(b)} for {layer}, whose weight is {list(weight)}: it is of "
                "another model"
            )
    if not matrices:
        raise AdapterError(f"{said} changes no layer: its adapter_model.safetensors has no LoRA matrix")


def _check_head(adapter: Adapter, base: Mapping[str, Shape]) -> None:
    said = f"the adapter {adapter.name}"
    weight = adapter.shapes.get(f"{PREFIX}{HEAD}.weight")
    announced = adapter.config.get("modules_to_save") or []
    if weight is None and HEAD in announced:
        raise AdapterError(
            f"{said} announces a head of its own (modules_to_save: {HEAD}) and its adapter_model.safetensors has none: "
            "the engine would score by the base's head"
        )
    if weight is not None and HEAD not in announced:
        raise AdapterError(
            f"{said} has a head, and modules_to_save of its adapter_config.json does not say {HEAD}: add it there"
        )
    of_base = base.get(f"{HEAD}.weight")
    if of_base is None:
        raise AdapterError(
            f"the base of {said} has no weight {HEAD}.weight: spec.model.source must be a reward model itself, with "
            "one label, and in safetensors"
        )
    if weight is not None and tuple(weight) != tuple(of_base):
        raise AdapterError(f"{said} has a head of {list(weight)}, and its base one of {list(of_base)}")


def shapes_of(folder: Path) -> dict[str, Shape]:
    """Shapes of all weights in the safetensors of a folder, by their names, from the headers alone."""
    found: dict[str, Shape] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= shapes_in(path)
    return found


def shapes_in(path: Path) -> dict[str, Shape]:
    """Those of one file."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def _read(given: Mapping[str, str]) -> Adapter:
    folder = _folder(given["path"], given.get("revision"))
    config, weights = folder / "adapter_config.json", folder / "adapter_model.safetensors"
    for path in (config, weights):
        if not path.is_file():
            raise AdapterError(f"the adapter {given['name']} has no {path.name} in {folder}")
    try:
        said = json.loads(config.read_bytes())
        shapes = shapes_in(weights)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdapterError(f"the adapter {given['name']} cannot be read in {folder}: {error!r:.200}") from None
    return Adapter(given["name"], str(folder), said if isinstance(said, dict) else {}, shapes)


def _folder(path: str, revision: str | None) -> Path:
    if (folder := Path(path)).is_dir():
        return folder
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(path, revision=revision, allow_patterns=["*.json", "*.safetensors"]))

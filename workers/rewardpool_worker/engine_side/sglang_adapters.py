"""LoRA adapters on SGLang: each computed as PEFT computes it, and scored by its own head where it has one.

SGLang 0.5.23 takes adapters of reward models, and has some of them score something else without a word. It multiplies
each layer by lora_alpha / r, whatever rank_pattern, alpha_pattern and use_rslora say; it stacks q, k and v as well as
gate and up, and leaves out what of a stack comes without its first; and it has no place for an adapter's own head. So
SGLang gets a copy of each adapter, the same one by PEFT's rules: all parts of a stack in every layer, zero where the
adapter has none, of one rank, and with each layer's scale in its matrix B. The adapter's head lies beside that copy,
and scores the adapter's samples in place of the base's.

Mounted into stock images next to SGLang's launcher. The images bring torch and safetensors.
"""

import argparse
import atexit
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from rewardpool_worker.engine_side.lora_adapters import HEAD, PREFIX, Adapter, AdapterError, Shape

OWN_HEAD = Path("own-head", "head.safetensors")  # not beside the adapter's matrices, where SGLang reads every file
COPIES = "rewardpool-adapters-"
STACKS = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
BLOCK = re.compile(r"(model\.layers\.\d+)\.(" + "|".join(re.escape(part) for stack in STACKS for part in stack) + ")")
PEFT_ALPHA = 8  # where a file says none


def flags(adapters: Sequence[Adapter], base: Mapping[str, Shape], argv: Sequence[str]) -> list[str]:
    """The flags by which SGLang serves these, of which copies are written; those live as long as this process.

    Args:
        base: shapes of the base's weights, by their names.
        argv: SGLang's flags so far.

    Raises:
        AdapterError: an adapter changes a layer that SGLang computes without it.
    """
    for adapter in adapters:
        refuse_other_layers(adapter)
    remove_copies_of_the_dead(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{COPIES}{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for adapter in adapters:
        write_copy(adapter, base, folder / adapter.name)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--device")
    known, _ = parser.parse_known_args(list(argv))
    return [
        *("--lora-paths", *(f"{adapter.name}={folder / adapter.name}" for adapter in adapters)),
        # All of them and the base, so that none waits for the room of another.
        *("--max-loras-per-batch", str(len(adapters) + 1)),
        # A recorded graph would have the heads of the batch that it was recorded with.
        "--disable-prefill-cuda-graph",
        # The others are compiled for GPUs.
        *(("--lora-backend", "torch_native") if known.device == "cpu" else ()),
    ]


def remove_copies_of_the_dead(parent: Path) -> None:
    """Remove the copies of processes that are no more: SGLang kills itself at some faults, and cleans up nothing then.

    Args:
        parent: the folder that they are in. A process of another user that has the number now keeps them.
    """
    for folder in parent.glob(f"{COPIES}*-*"):
        pid = folder.name.removeprefix(COPIES).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


def refuse_other_layers(adapter: Adapter) -> None:
    """See that SGLang computes every layer that an adapter changes; pure.

    Raises:
        AdapterError: it does not; the text names the layer.
    """
    layers = (name.removeprefix(PREFIX).partition(".lora_")[0] for name in adapter.shapes if ".lora_" in name)
    if other := next((layer for layer in layers if not BLOCK.fullmatch(layer)), None):
        raise AdapterError(
            f"the adapter {adapter.name} changes {other}, and SGLang takes adapters of the attention's and the MLP's "
            "projections alone: serve this pool with spec.engine.name vllm"
        )


def write_copy(adapter: Adapter, base: Mapping[str, Shape], folder: Path) -> None:
    """Write an adapter as SGLang computes it right; its head, where it has one of its own, as OWN_HEAD."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(Path(adapter.path) / "adapter_model.safetensors")
    folder.mkdir()
    head = tensors.pop(f"{PREFIX}{HEAD}.weight", None)
    if head is not None:
        (folder / OWN_HEAD).parent.mkdir()
        save_file({"weight": head}, folder / OWN_HEAD)
    matrices, config = as_stacks(tensors, adapter.config, base)
    save_file(matrices, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))


def as_stacks(
    tensors: Mapping[str, Any], config: Mapping[str, Any], base: Mapping[str, Shape]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """An adapter's matrices for whole stacks, of one rank, with its scales in B, and the config.json for them; pure.

    Args:
        tensors: of the adapter's file: A (rank, in) and B (out, rank) of layers.
        base: shapes of the base's weights, by their names.
    """
    import torch

    blocks = [match for name in base if (match := BLOCK.fullmatch(name.removesuffix(".weight")))]
    changed = {match[2] for name in tensors if (match := BLOCK.search(name))}
    parts = {part for stack in STACKS if changed.intersection(stack) for part in stack}
    rank = max(tensor.shape[0] for name, tensor in tensors.items() if ".lora_A." in name)
    stacked: dict[str, Any] = {}
    for layer in (block[0] for block in blocks if block[2] in parts):
        out, into = base[f"{layer}.weight"]
        a, b = torch.zeros(rank, into), torch.zeros(out, rank)
        names = f"{PREFIX}{layer}.lora_A.weight", f"{PREFIX}{layer}.lora_B.weight"
        if names[0] in tensors:
            given_a, given_b = (tensors[name].float() for name in names)
            own = len(given_a)
            a[:own], b[:, :own] = given_a, given_b * scale(config, layer, own)
        stacked |= dict(zip(names, (a, b), strict=True))
    targets = sorted(part.rpartition(".")[2] for part in parts)
    return stacked, {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets}


def scale(config: Mapping[str, Any], layer: str, rank: int) -> float:
    """Return PEFT's factor of a layer's B·A. Pure.

    Args:
        config: the adapter's adapter_config.json.
    """
    patterns = config.get("alpha_pattern") or {}
    own = next((alpha for key, alpha in patterns.items() if re.match(rf"(.*\.)?({key})$", layer)), None)
    alpha = config.get("lora_alpha", PEFT_ALPHA) if own is None else own
    return float(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


class Unpinned:
    """torch, for a machine without a GPU that memory could be pinned for: there pinning it is an error."""

    def __getattr__(self, name: str) -> Any:
        import torch

        found = getattr(torch, name)
        if name not in ("tensor", "zeros"):
            return found
        return lambda *args, pin_memory=False, **kwargs: found(*args, **kwargs)


def without_pinned_memory() -> None:
    """In SGLang's scheduler on a CPU: have adapters computed there; SGLang pins what it has of them for any device."""
    import torch
    from sglang.srt.lora import layers
    from sglang.srt.lora.backend import torch_backend

    layers.torch = torch_backend.torch = Unpinned()
    torch.Tensor.pin_memory = lambda tensor, *_: tensor


def score_by_own_heads() -> None:
    """Score each adapter's samples by its own head; in SGLang's scheduler, before that makes the model."""
    from safetensors.torch import load_file
    from sglang.srt.lora.lora_manager import LoRAManager
    from sglang.srt.model_loader import loader

    heads: dict[str, Any] = {}
    load_matrices, initialize = LoRAManager.load_lora_weights, loader._initialize_model

    def load_with_head(manager: Any, adapter: Any) -> None:
        load_matrices(manager, adapter)
        if (file := Path(adapter.lora_path) / OWN_HEAD).is_file():
            heads[adapter.lora_id] = load_file(file)["weight"]

    def initialize_with_heads(*args: Any, **kwargs: Any) -> Any:
        model = initialize(*args, **kwargs)
        choose_heads(model, heads)
        return model

    LoRAManager.load_lora_weights = load_with_head
    loader._initialize_model = initialize_with_heads


def choose_heads(model: Any, heads: MutableMapping[str, Any]) -> None:
    """Score each sample by the head of its adapter.

    Args:
        model: SGLang's, which pools the samples of a batch first, and calls its head once, with a row per sample.
        heads: weights (1, hidden size) of adapters with a head of their own, by SGLang's id; filled by and by.
    """
    of_batch: list[str | None] = []
    forward = model.forward

    def forward_noted(input_ids: Any, positions: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
        of_batch[:] = forward_batch.lora_ids or [None] * forward_batch.batch_size
        return forward(input_ids, positions, forward_batch, *args, **kwargs)

    def score(_: Any, given: tuple[Any, ...], scores: Any) -> Any:
        (pooled,) = given
        if len(pooled) != len(of_batch):
            raise RuntimeError(f"the head got {len(pooled)} rows for {len(of_batch)} samples")
        for row, adapter in enumerate(of_batch):
            if adapter is not None and adapter in heads:
                heads[adapter] = own = heads[adapter].to(pooled)
                scores[row] = own @ pooled[row]
        return scores

    model.forward = forward_noted
    model.score.register_forward_hook(score)

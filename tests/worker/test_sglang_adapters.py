"""What SGLang is given for an adapter, with the servers' torch. That it scores by it is in engines/test_adapters.py."""

import os
import subprocess
from pathlib import Path

import pytest
from support.fleet import server_python

from rewardpool_worker.mounted import write_worker_zip

pytestmark = pytest.mark.real
GIVEN = """
import json, math, pathlib, types
import torch
from safetensors.torch import load_file, save_file
from rewardpool_worker.engine_side import sglang_adapters as it
from rewardpool_worker.engine_side.lora_adapters import PREFIX, Adapter, AdapterError

torch.manual_seed(0)
parts = [part for stack in it.STACKS for part in stack]
BASE = {f"model.layers.{n}.{part}.weight": (6, 5) for n in range(2) for part in parts} | {"score.weight": (1, 5)}

def matrices(*layers, rank=2):
    shapes = {"A": (rank, 5), "B": (6, rank)}
    return {f"{PREFIX}{layer}.lora_{x}.weight": torch.randn(shape) for layer in layers for x, shape in shapes.items()}

def change(tensors, layer, scale=1.0):
    # What an adapter adds to a weight, zero where it has nothing.
    a, b = (tensors.get(f"{PREFIX}{layer}.lora_{x}.weight") for x in "AB")
    return torch.zeros(6, 5) if a is None else scale * (b.float() @ a.float())

def close(found, expected):
    return torch.allclose(torch.as_tensor(found), torch.as_tensor(expected), atol=1e-6)

def refused(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("not refused")

def adapter(tensors, **config):
    return Adapter("safe", "/adapters/safe", config, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
"""
CASES = {
    "a k without a q, and an up without a gate, become whole stacks in every layer": """
K, UP = "model.layers.0.self_attn.k_proj", "model.layers.1.mlp.up_proj"
given = matrices(K) | matrices(UP, rank=4)
found, config = it.as_stacks(given, {"r": 2, "lora_alpha": 6}, BASE)
assert {name.split(".lora_")[0] for name in found} == {
    f"{PREFIX}model.layers.{n}.{part}" for n in range(2) for stack in (it.STACKS[0], it.STACKS[2]) for part in stack
}
assert (config["r"], config["lora_alpha"]) == (4, 4)
assert config["target_modules"] == ["gate_proj", "k_proj", "q_proj", "up_proj", "v_proj"]
for name in BASE:
    layer = name.removesuffix(".weight")
    expected = change(given, layer, {K: 3.0, UP: 1.5}.get(layer, 0.0))
    assert close(change(found, layer), expected)
""",
    "a layer's scale is PEFT's": """
Q = "model.layers.0.self_attn.q_proj"
for config, rank, scale in [
    ({"r": 4, "lora_alpha": 8}, 4, 2.0),
    ({"r": 4}, 4, 2.0),
    ({"r": 4, "lora_alpha": 8, "use_rslora": True}, 4, 4.0),
    ({"r": 4, "lora_alpha": 8, "rank_pattern": {"q_proj": 2}}, 2, 4.0),
    ({"r": 4, "lora_alpha": 8, "alpha_pattern": {"q_proj": 2}}, 4, 0.5),
    ({"r": 4, "lora_alpha": 8, "alpha_pattern": {"layers.0.self_attn.q_proj": 2, "q_proj": 6}}, 4, 0.5),
    ({"r": 4, "lora_alpha": 8, "alpha_pattern": {"proj": 2}}, 4, 2.0),
    ({"r": 4, "lora_alpha": 8, "alpha_pattern": {r"layers\\.\\d\\.self_attn\\..*": 2}}, 4, 0.5),
]:
    assert it.scale(config, Q, rank) == scale, config
""",
    "a layer that SGLang computes without the adapter is refused by its name": """
it.refuse_other_layers(adapter(matrices("model.layers.0.mlp.down_proj") | {f"{PREFIX}score.weight": torch.ones(1, 5)}))
for layer in ("model.embed_tokens", "model.layers.0.mlp.experts.3.up_proj", "model.layers.0.self_attn.qkv_proj"):
    said = refused(AdapterError, lambda: it.flags([adapter(matrices(layer))], BASE, []))
    assert f"the adapter safe changes {layer}, and SGLang" in said
""",
    "a copy has the matrices, and the adapter's own head where SGLang does not read": """
own = pathlib.Path("adapter")
own.mkdir()
given, head = matrices("model.layers.0.mlp.down_proj"), torch.randn(1, 5)
save_file(given | {f"{PREFIX}score.weight": head}, own / "adapter_model.safetensors")
it.write_copy(Adapter("safe", str(own), {"lora_alpha": 2}, {}), BASE, pathlib.Path("copy"))
assert torch.equal(load_file(pathlib.Path("copy") / it.OWN_HEAD)["weight"], head)
assert [path.name for path in pathlib.Path("copy").glob("*.safetensors")] == ["adapter_model.safetensors"]
found = load_file("copy/adapter_model.safetensors")
assert close(change(found, "model.layers.0.mlp.down_proj"), change(given, "model.layers.0.mlp.down_proj"))
flags = it.flags([Adapter("safe", str(own), {}, {})], BASE, ["--device", "cpu"])
path = flags[1].removeprefix("safe=")
assert (pathlib.Path(path) / "adapter_config.json").is_file()
assert flags == ["--lora-paths", f"safe={path}", "--max-loras-per-batch", "2", "--disable-prefill-cuda-graph",
                 "--lora-backend", "torch_native"]
assert it.flags([Adapter("safe", str(own), {}, {})], BASE, [])[-1] == "--disable-prefill-cuda-graph"
""",
    "copies go when the process whose they were is no more": """
import os, subprocess
ended = subprocess.Popen(["true"])
ended.wait()
names = (f"{it.COPIES}{ended.pid}-x", f"{it.COPIES}{os.getpid()}-x", "other")
left, own, other = map(pathlib.Path, names)
for folder in (left, own, other):
    folder.mkdir()
it.remove_copies_of_the_dead(pathlib.Path())
assert (left.exists(), own.exists(), other.exists()) == (False, True, True)
""",
    "what SGLang pins for a GPU is plain memory on a CPU": """
unpinned = it.Unpinned()
assert unpinned.zeros((2,), dtype=unpinned.int32, pin_memory=True).tolist() == [0, 0]
assert unpinned.tensor([7], device="cpu", pin_memory=True).tolist() == [7]
""",
    "each sample is scored by its adapter's head, and by the base's without one": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.score = torch.nn.Linear(5, 1, bias=False)
    def forward(self, input_ids, positions, forward_batch):
        return self.score(input_ids)

model, heads = Model(), {}
it.choose_heads(model, heads)
heads["own"] = torch.randn(1, 5, dtype=torch.bfloat16)
pooled = torch.randn(3, 5)
batch = types.SimpleNamespace(lora_ids=["bases", "own", None], batch_size=3)
with torch.no_grad():
    found = model.forward(pooled, None, batch)[:, 0].tolist()
    base = torch.nn.functional.linear(pooled, model.score.weight)[:, 0].tolist()
    own = torch.nn.functional.linear(pooled, heads["own"].float())[:, 0].tolist()
    assert close(found, [base[0], own[1], base[2]])
    batch.lora_ids = None
    assert close(model.forward(pooled, None, batch)[:, 0], base)
    batch.lora_ids = ["own"]
    assert "the head got 3 rows for 1 samples" in refused(RuntimeError, lambda: model.forward(pooled, None, batch))
""",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
def test_sglang_is_given_what_peft_computes(case: str, tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(write_worker_zip(tmp_path))}
    done = subprocess.run(
        [server_python(), "-c", GIVEN + CASES[case]],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]

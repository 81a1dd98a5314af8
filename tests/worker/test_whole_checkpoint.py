"""The file that has vLLM load a checkpoint whole, with the servers' torch and a stand-in for vLLM's layers."""

import os
import subprocess
from pathlib import Path

import pytest
from support.fleet import server_python

from rewardpool_worker.mounted import write_worker_zip

pytestmark = pytest.mark.real
PROGRAM = """
import sys, types
import torch

class LinearBase(torch.nn.Linear): pass
class VocabParallelEmbedding(torch.nn.Embedding): pass
class DefaultModelLoader:
    def load_weights(self, model, model_config):
        for name, values in model_config.checkpoint.items():
            dict(model.named_parameters())[name].data.copy_(values)

for path in ("vllm", "vllm.model_executor", "vllm.model_executor.layers", "vllm.model_executor.model_loader"):
    sys.modules[path] = types.ModuleType(path)
def has(path, made):
    module = types.ModuleType(path)
    setattr(module, made.__name__, made)
    sys.modules[path] = module
has("vllm.model_executor.layers.linear", LinearBase)
has("vllm.model_executor.layers.vocab_parallel_embedding", VocabParallelEmbedding)
has("vllm.model_executor.model_loader.default_loader", DefaultModelLoader)
from rewardpool_worker.engine_side import whole_checkpoint

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = VocabParallelEmbedding(4, 2)
        self.norm = torch.nn.LayerNorm(2)
        self.score = LinearBase(2, 1, bias=False)

def outcome(*, quantization=None, nan=False, **without):
    torch.manual_seed(0)
    model, full = Model(), Model().state_dict()
    if nan:
        full["score.weight"][0, 0] = torch.nan
    checkpoint = {name: values for name, values in full.items() if not without.get(name.replace(".", "_"))}
    config = types.SimpleNamespace(quantization=quantization, checkpoint=checkpoint)
    try:
        DefaultModelLoader().load_weights(model, config)
    except whole_checkpoint.ModelRefusedError as error:
        return str(error)
    return all(torch.equal(model.state_dict()[name], values) for name, values in checkpoint.items())

assert outcome() is True
assert outcome(norm_weight=True) is True  # vLLM notices that itself
assert outcome(quantization="fp8", score_weight=True) is True
assert "lacks 1 of" in outcome(score_weight=True) and "score.weight" in outcome(score_weight=True)
assert "(embed.weight)" in outcome(embed_weight=True)
assert "(score.weight)" in outcome(nan=True)
"""


def test_a_linear_layer_or_an_embedding_that_the_checkpoint_lacks_ends_the_start(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(write_worker_zip(tmp_path))}
    done = subprocess.run(
        [server_python(), "-c", PROGRAM],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]

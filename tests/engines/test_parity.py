"""Every engine scores every class as transformers does, or refuses it by name: `make test-engines`.

Each case starts two replicas and a router and takes minutes; the results are kept in .rewardpool/engines/parity.json.
"""

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.fleet import ROOT
from support.parity import ENGINES, Known, known, measure
from support.tiny_models import CLASSES

pytestmark = pytest.mark.real

OUT = ROOT / ".rewardpool" / "engines" / "parity.json"
TEXTS = int(os.environ.get("PARITY_TEXTS", "1000"))
CLOSE = 1e-3
ONE_LABEL_CLOSE = 1e-5
COARSER = {("vllm", "Gemma2")}
"""vLLM's attention on a CPU bounds Gemma-2's logits inexactly: off by up to 3e-4, and by 1e-6 without the bound."""
REPLICAS_CLOSE = 1e-6
"""In units of what fp32 can tell apart: of the score where it is larger than one, and of what an engine answers before
weights of several labels multiply it. Two replicas have other prefixes in their caches, so the last bits may differ."""
REFUSED = {
    ("sglang", "Mistral"): "SGLang has no class for MistralForSequenceClassification",
    ("sglang", "process-reward"): "spec.model.head.stepToken",
    ("sglang", "steps-yes-no"): "spec.model.head.stepToken",
    ("sglang", "generative"): "LlamaForCausalLM has no reward head",
    ("vllm", "generative"): "LlamaForCausalLM without a classification head",
    ("transformers", "generative"): "config.json names LlamaForCausalLM",
    **{("transformers", name): "spec.model.head must not be set" for name, of in CLASSES.items() if of.head},
}


@pytest.fixture(scope="module")
def of_class(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Known]:
    """A model of a class, the same for all engines: transformers needs a minute for its scores."""
    return cache(lambda name: known(name, tmp_path_factory.mktemp(name), count=TEXTS))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CLASSES)
def test_an_engine_scores_as_transformers_does_or_says_that_it_cannot(
    engine: str, name: str, of_class: Callable[[str], Known], tmp_path: Path
) -> None:
    found = measure(engine, of_class(name), tmp_path)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(OUT.read_text()) if OUT.exists() else {}
    kept.setdefault(engine, {})[name] = found
    OUT.write_text(json.dumps(kept, indent=2))
    if (engine, name) in REFUSED:
        assert REFUSED[engine, name] in found["refused"]
    else:
        exact = CLASSES[name].head is None and (engine, name) not in COARSER
        assert found.get("refused") is None
        assert found["max_abs_diff"] <= (ONE_LABEL_CLOSE if exact else CLOSE)
        weights = (CLASSES[name].head or {}).get("weights", [1.0])
        scale = max(sum(map(abs, weights)), *(abs(score) for score, *_ in of_class(name).expected))
        assert found["replica_diff"] <= REPLICAS_CLOSE * scale

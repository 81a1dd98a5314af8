"""Every engine scores every class as transformers does, or refuses it by name: `make test-engines`.

Each case starts two replicas and a router and takes minutes; the results are kept in .rewardpool/engines/parity.json.
"""

import json
from pathlib import Path

import pytest
from support.fleet import ROOT
from support.parity import CLASSES, ENGINES, measure

pytestmark = pytest.mark.real

OUT = ROOT / ".rewardpool" / "engines" / "parity.json"
TEXTS = 1000
CLOSE = 1e-5
REPLICAS_CLOSE = 1e-6
REFUSED = {("sglang", "Mistral"): "SGLang has no class for MistralForSequenceClassification"}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_scores_as_transformers_does_or_says_that_it_cannot(engine: str, kind: str, tmp_path: Path) -> None:
    found = measure(engine, kind, tmp_path, count=TEXTS)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(OUT.read_text()) if OUT.exists() else {}
    kept.setdefault(engine, {})[kind] = found
    OUT.write_text(json.dumps(kept, indent=2))
    if (engine, kind) in REFUSED:
        assert REFUSED[engine, kind] in found["refused"]
    else:
        assert found.get("refused") is None
        assert found["max_abs_diff"] <= CLOSE
        assert found["replica_diff"] <= REPLICAS_CLOSE

"""The change of engine under load: the API takes its manifests, and what must be refused counts where it is."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from faults.traffic import Question, score
from overlay import Environment
from rewardpool import Outcome, Sample, Scored, Unscored
from rewardpool.errors import InvalidSampleError, SampleError
from rewardpool_api import load_manifest
from two_engines import manifests

NEITHER = Question(sample=Sample(token_ids=[4_000_000]), score=None)


class AnsweringPool:
    """A stand-in for the client, with one outcome for every sample."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    async def outcome(self, sample: Sample) -> Outcome:
        return self._outcome


async def problem_of(outcome: Outcome) -> str | None:
    out = io.StringIO()
    pool: Any = AnsweringPool(outcome)
    await score(pool, NEITHER, index=0, due=0.0, out=out)
    found: str | None = json.loads(out.getvalue())["problem"]
    return found


async def test_a_sample_that_nobody_can_score_has_to_be_refused_as_such() -> None:
    def unscored(error: SampleError) -> Unscored:
        return Unscored(error=error, attempts=1, seconds=0.1)

    assert await problem_of(unscored(InvalidSampleError("0", "token id 4000000"))) is None
    assert (await problem_of(unscored(SampleError("0", "no answer"))) or "").startswith("failed")
    assert (await problem_of(Scored(value=0.5, attempts=1, seconds=0.1)) or "").startswith("wrong")


def test_the_pool_is_one_that_the_api_takes_on_either_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def environment(name: str) -> Environment:
        return Environment(folder=Path("/venvs") / name, base=Path("/usr"))

    monkeypatch.setattr(manifests, "environment", environment)
    monkeypatch.setattr("autoscaling.manifests.environment", environment)
    on_vllm = manifests.pool()
    spec = load_manifest(yaml.safe_dump(on_vllm)).spec
    engine = {**on_vllm["spec"]["engine"], **manifests.on_sglang()["engine"]}
    changed = {**on_vllm, "spec": {**on_vllm["spec"], "engine": engine}}
    after = load_manifest(yaml.safe_dump(changed)).spec
    assert (spec.engine.name, after.engine.name) == ("vllm", "sglang")
    assert after.engine.variables["PATH"].startswith("/venvs/sglang/bin:")
    assert "VLLM_CPU_KVCACHE_SPACE" not in after.engine.variables
    assert after.worker == spec.worker

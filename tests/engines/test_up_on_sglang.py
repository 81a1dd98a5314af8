"""`rewardpool up` of a real SGLang that does not come up: on a CPU without what that takes, and in too short a time."""

import time
from pathlib import Path
from typing import Any

import pytest
from support.local_machine import LocalMachine, machine
from support.patience import PATIENCE
from support.replicas import ON_CPU, engine_python
from support.vllm_server import quickstart_pool

from rewardpool_api import names

__all__ = ["machine"]

pytestmark = pytest.mark.real


def manifest(here: LocalMachine, **engine: Any) -> Path:
    """The quick start's reward model on SGLang, in its own environment."""
    here.environ[names.ENV_SERVER_PYTHON] = engine_python("sglang")
    model = {"source": quickstart_pool().spec.model.source}
    return here.manifest(model=model, engine={"name": "sglang", "dtype": "float32", "maxModelLen": 512, **engine})


@pytest.mark.long  # tests/worker and tests/control go by the words that it prints
async def test_an_sglang_that_finds_no_accelerator_ends_up_at_once_with_what_to_write(machine: LocalMachine) -> None:
    code, said = await machine.run("up", "-f", manifest(machine))
    assert code == 1, said
    assert "SGLANG_USE_CPU_ENGINE" in said
    assert "--device, cpu" in said
    degraded = machine.pool().status.condition("Degraded")
    assert degraded is not None
    assert degraded.reason == "NoAccelerator"


async def test_up_gives_up_when_its_time_is_over(machine: LocalMachine) -> None:
    file, began = manifest(machine, **ON_CPU["sglang"]), time.monotonic()
    code, said = await machine.run("up", "-f", file, "--wait-seconds", "3")
    assert (code, "within 3 s" in said) == (1, True), said
    assert time.monotonic() - began < 3 + 7 * PATIENCE

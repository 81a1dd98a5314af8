"""`rewardpool up` of a teacher on a real vLLM, and what its user does next."""

import asyncio
from pathlib import Path

import pytest
from support.local_machine import LocalMachine, machine
from support.parity import run
from support.replicas import ON_CPU

from rewardpool import Teacher
from rewardpool_api import names

__all__ = ["machine"]

pytestmark = [pytest.mark.real, pytest.mark.long]


async def test_a_teacher_that_is_up_gives_log_probabilities_by_its_name(
    machine: LocalMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("make", "generative", str(tmp_path / "model"))
    model = {"source": f"file://{tmp_path / 'model'}", "type": "Teacher"}
    file = machine.manifest(model=model, engine={"dtype": "float32", "maxModelLen": 512, **ON_CPU["vllm"]})
    command = machine.start("up", "-f", file, "--detach", "--wait-seconds", "300")
    said, _ = await asyncio.to_thread(command.communicate, timeout=330)
    assert command.returncode == 0, said
    assert machine.pool().status.model is not None
    assert (machine.pool().status.model.type, machine.pool().status.model.max_model_len) == ("Teacher", 511)
    assert machine.pool().status.model.certificate is not None
    assert machine.pool().status.model.certificate.outcome == "Certified"
    monkeypatch.setenv(names.ENV_STATE_DIR, machine.environ[names.ENV_STATE_DIR])

    def ask() -> list[int]:
        with Teacher(machine.pool_key) as teacher:
            return [len(answer) for answer in teacher([[1, 2, 3], [4, 5]], top_k=64)]

    assert await asyncio.to_thread(ask) == [2, 1]
    code, said = await machine.run("score", "hello", "--pool", machine.pool_key)
    assert code != 0
    assert "gives log-probabilities instead of scores" in said
    assert (await machine.run("down", machine.pool_key))[0] == 0

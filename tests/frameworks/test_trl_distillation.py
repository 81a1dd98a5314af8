"""TRL's ServerDistillationTrainer with a teacher of two replicas of the real vLLM: router, `spec.gateway` and URL.

Nothing of TRL's is changed but one question: whether vLLM is installed beside the trainer. Its client asks for the
weights' sake, which a teacher has none of.
"""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from support.fleet import server_python
from support.local_machine import LocalMachine, machine
from support.parity import run
from support.ports import free_port
from support.processes import RealProcess, http
from support.replicas import ON_CPU, START_SECONDS
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl.generation import vllm_client

__all__ = ["machine"]

pytestmark = [pytest.mark.real, pytest.mark.long]

STEPS = 4
WORDS = ["two and two", "three", "a long question about nothing much", "yes"]


@pytest.fixture(autouse=True)
def without_vllm_beside_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_client, "is_vllm_available", lambda: True)


def losses(url: str, model: Path, out: Path, *, after_step: Any = lambda _: None) -> list[float]:
    """Of each step; the student is the teacher with noise."""
    from trl.experimental.server_distillation import ServerDistillationConfig, ServerDistillationTrainer

    class AfterStep(TrainerCallback):  # type: ignore[misc] # TRL has no types
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            after_step(state.global_step)

    torch.manual_seed(5)
    student = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    args = ServerDistillationConfig(
        output_dir=str(out),
        teacher_model_server_url=url,
        use_cpu=True,
        bf16=False,
        use_vllm=False,
        per_device_train_batch_size=4,
        max_completion_length=12,
        max_steps=STEPS,
        logging_steps=1,
        beta=1.0,
        learning_rate=1e-3,
        seed=5,
        save_strategy="no",
        report_to=[],
    )
    trainer = ServerDistillationTrainer(
        model=student,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": WORDS * STEPS}),
        processing_class=AutoTokenizer.from_pretrained(model),
        callbacks=[AfterStep()],
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture
def bare_vllm(tmp_path: Path) -> Iterator[Any]:
    """Starts vLLM by itself, with no flag for teachers."""
    started: list[RealProcess] = []

    def start(model: Path) -> str:
        argv = [server_python(), "-m", "vllm.entrypoints.launchers.api_server.entry", "--model", str(model)]
        argv += ["--host", "127.0.0.1", "--port", str(port := free_port()), "--dtype", "float32"]
        argv += ["--max-model-len", "512", *ON_CPU["vllm"]["args"]]
        env = {one["name"]: one["value"] for one in ON_CPU["vllm"]["env"]}
        process = RealProcess(argv, env=env, log=tmp_path / "vllm.log", cwd=tmp_path)
        started.append(process.__enter__())
        url = f"http://127.0.0.1:{port}"
        process.until(lambda: http("GET", url + "/health")[0] == 200, seconds=START_SECONDS, what="vLLM answers")
        return url

    yield start
    for process in started:
        process.__exit__(None, None, None)


async def test_trl_distils_from_a_pool_as_from_a_bare_vllm_though_a_worker_dies(
    machine: LocalMachine, tmp_path: Path, bare_vllm: Any
) -> None:
    model = tmp_path / "model"
    run("make", "generative", str(model))
    file = machine.manifest(
        model={"source": f"file://{model}", "type": "Teacher"},
        engine={"dtype": "float32", "maxModelLen": 512, **ON_CPU["vllm"]},
        gateway={},
        replicas=2,
    )
    command = machine.start("up", "-f", file, "--detach", "--wait-seconds", str(START_SECONDS))
    said, _ = await asyncio.to_thread(command.communicate, timeout=START_SECONDS + 30)
    assert command.returncode == 0, said
    gateway = machine.pool().status.gateway
    assert gateway is not None
    url = gateway.url.replace("//", f"//trainer:{machine.folder.gateway_key_file.read_text()}@")

    def after_step(step: int) -> None:
        if step == 2:
            machine.worker().kill()

    by_pool = await asyncio.to_thread(losses, url, model, tmp_path / "by-pool", after_step=after_step)
    print(f"losses by the pool: {by_pool}", flush=True)
    assert (await machine.run("down", machine.pool_key))[0] == 0
    bare = await asyncio.to_thread(lambda: losses(bare_vllm(model), model, tmp_path / "bare"))
    print(f"losses by a bare vLLM: {bare}")
    assert len(by_pool) == STEPS
    assert all(map(math.isfinite, by_pool))
    assert by_pool == pytest.approx(bare, rel=1e-3)
    assert by_pool[0] > 0

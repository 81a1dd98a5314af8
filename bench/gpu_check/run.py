"""A check carried out, by the project's own commands and client."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_check.plan import TENSOR_PARALLEL, Check, Manifest
from rewardpool import Pool, RewardConfig, Sample, Scored
from rewardpool_api import names

ROOT: Final = Path(__file__).resolve().parents[2]
START_SECONDS: Final = 900.0
"""For an engine that compiles on its first start."""
COMMAND_SECONDS: Final = START_SECONDS + 60.0
TRAINER_PYTHON: Final = "REWARDPOOL_TRAINER_PYTHON"
WAKES: Final = 5
CLOSE: Final = 1e-6
"""Between what an engine says before and after it slept: the same kernels on the same weights."""
THROUGHPUT_IN_FLIGHT: Final = 64
TRAINING_STEPS: Final = 3
TRAINING_SECONDS: Final = 1800.0

Figures = dict[str, Any]


class CheckError(RuntimeError):
    """It did not hold, or could not be carried out; the message says why."""


@dataclass(frozen=True)
class Machine:
    """Where the check is carried out."""

    folder: Path
    """For state and manifests; the pools of the user are elsewhere."""
    golden: Path
    """What `make golden` made."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def variables(self) -> dict[str, str]:
        """Of all commands: pools of this check's own, and no cluster."""
        own = {names.ENV_STATE_DIR: str(self.folder / "state"), "KUBECONFIG": str(self.folder / "none")}
        return {**self.environ, **own}


def carry_out(check: Check, machine: Machine) -> Figures:
    """Do it and return its figures.

    Raises:
        CheckError: it did not hold.
    """
    if check.manifest is None:
        return _training(machine)
    with _pool(check.manifest, machine) as file:
        if check.kind == "scores":
            return _scores(check, file, machine)
        seen = _sleep if check.kind == "sleep" else _throughput
        return asyncio.run(seen(check, machine))


@contextmanager
def _pool(manifest: Manifest, machine: Machine) -> Iterator[Path]:
    file = machine.folder / "pool.json"
    file.write_text(json.dumps(manifest))
    _rewardpool(machine, "up", "-f", str(file), "--detach", "--wait-seconds", f"{START_SECONDS:.0f}")
    try:
        yield file
    finally:
        _rewardpool(machine, "down", _key(manifest))


def _scores(check: Check, file: Path, machine: Machine) -> Figures:
    golden = machine.golden / check.model_class / "golden.jsonl"
    said = json.loads(_rewardpool(machine, "verify", "-f", str(file), "--golden", str(golden), "--json", fails=True))
    figures = {name: said[name] for name in ("texts", "unscored", "max_abs_diff", "mean_abs_diff", "rank_flips")}
    if not said["holds"]:
        raise CheckError(f"the scores are not those of transformers: {figures}")
    return figures


async def _sleep(check: Check, machine: Machine) -> Figures:
    """What a wake and a sleep take, whether memory is given back, and whether scores are the same afterwards."""
    texts = _texts(check, machine)
    seconds: list[float] = []
    before: list[float] | None = None
    asleep = _used_bytes()
    async with _open(check, machine) as pool:
        for _ in range(WAKES):
            began = time.perf_counter()
            async with pool.awake():
                seconds.append(time.perf_counter() - began)
                scores, awake = await _all_scores(pool, texts), _used_bytes()
            if before is not None and (off := max(abs(a - b) for a, b in zip(before, scores, strict=True))) > CLOSE:
                raise CheckError(f"a score is another one after the engine slept: off by {off:g}")
            before = scores
    again = _used_bytes()
    if again >= awake:
        raise CheckError(f"sleeping gives no memory back: {awake} bytes used awake, {again} asleep")
    return {"wake_seconds": seconds, "bytes_asleep": asleep, "bytes_awake": awake, "bytes_asleep_again": again}


async def _throughput(check: Check, machine: Machine) -> Figures:
    texts = _texts(check, machine)
    samples = [texts[index % len(texts)] for index in range(check.samples)]
    async with _open(check, machine) as pool:
        await _all_scores(pool, texts)
        began = time.perf_counter()
        await _all_scores(pool, samples)
        seconds = time.perf_counter() - began
    return {"samples": len(samples), "in_flight": THROUGHPUT_IN_FLIGHT, "samples_per_second": len(samples) / seconds}


def training_config(output: Path) -> str:
    """The quick start's configuration, as YAML, for three steps by the check's own pool."""
    quickstart = ROOT / "examples" / "quickstart"
    config = yaml.safe_load((quickstart / "train.yaml").read_text())
    config["data"]["prompts"] = str(quickstart / config["data"]["prompts"])
    config["reward"]["pool"] = "default/gpu-check"
    return yaml.safe_dump({**config, "steps": TRAINING_STEPS, "output": str(output)})


def _training(machine: Machine) -> Figures:
    """The quick start's training job on two GPUs, three steps, with a pool of a function."""
    rewards = machine.folder / "rewards.py"
    rewards.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return len(solution_str) / 100\n"
    )
    manifest = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "gpu-check", "namespace": "default"},
        "spec": {"model": {"source": "python://rewards:compute_score"}},
    }
    (file := machine.folder / "train.yaml").write_text(training_config(machine.folder / "train"))
    began = time.perf_counter()
    with _pool(manifest, machine):
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={TENSOR_PARALLEL}"]
        _run(
            [machine.environ[TRAINER_PYTHON], *torchrun, "-m", "rewardpool_train", str(file)], machine, TRAINING_SECONDS
        )
    return {"steps": TRAINING_STEPS, "seconds_with_start": time.perf_counter() - began}


def _open(check: Check, machine: Machine) -> Pool:
    if check.manifest is None:
        raise CheckError("it has no pool")
    os.environ.update(machine.variables)
    return Pool(RewardConfig(pool=_key(check.manifest), concurrency=THROUGHPUT_IN_FLIGHT))


async def _all_scores(pool: Pool, texts: Sequence[str]) -> list[float]:
    scores: dict[int, float] = {}
    async for index, outcome in pool.stream([Sample(text=text) for text in texts]):
        if not isinstance(outcome, Scored):
            raise CheckError(f"a sample has no score: {outcome}")
        scores[index] = outcome.value
    return [scores[index] for index in range(len(texts))]


def _texts(check: Check, machine: Machine) -> list[str]:
    lines = (machine.golden / check.model_class / "golden.jsonl").read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


def _key(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def _used_bytes() -> int:
    """Of all GPUs."""
    said = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    return sum(int(line) << 20 for line in said.split())


def _rewardpool(machine: Machine, *arguments: str, fails: bool = False) -> str:
    return _run([str(Path(sys.executable).with_name("rewardpool")), *arguments], machine, COMMAND_SECONDS, fails=fails)


def _run(command: Sequence[str], machine: Machine, seconds: float, *, fails: bool = False) -> str:
    """What a command prints; where it `fails`, that is told by what it prints."""
    try:
        done = subprocess.run(
            command,
            cwd=machine.folder,
            env=machine.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CheckError(f"{' '.join(command[:3])} took longer than {seconds:.0f} s") from None
    if done.returncode and not (fails and done.stdout):
        raise CheckError(
            f"{' '.join(command[:3])} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}"
        )
    return done.stdout

"""Two real vLLM workers for a whole test session: 45 s to start, so every test that needs one shares it.

They serve the quick start's two models exactly as a pool's worker does: command line from `engines`, mounted files,
a key. Tests take the fixture `vllm_server` for the reward model, and `judge_server` for the one that writes.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from support.fleet import ROOT, server_python
from support.launch_target import KEY, target_in
from support.processes import RealProcess, http

from rewardpool_api import RewardPool, RewardPoolSpec, load_manifest, names
from rewardpool_worker.engines import engine_for

START_SECONDS = 300.0
"""Four times what an idle machine with two cores needs; other tests may run beside."""
QUICKSTART = ROOT / "examples" / "quickstart"
# The quick start's policy writes random words. Held to a schema it has no choice but to answer; and it is told to leave
# out blanks, because the grammar allows as many of them as a model likes, and this one likes many.
HELD = '{"backend": "xgrammar", "disable_any_whitespace": true}'


@dataclass(frozen=True)
class VllmServer:
    """A vLLM worker that scores."""

    url: str
    key: str
    served_name: str
    max_model_len: int
    """Tokens."""
    log: Path
    """What it prints."""


@cache
def quickstart_pool() -> RewardPool:
    """The quick start's pool with its models built: the first call of a session takes seconds, or half a minute."""
    python = os.environ.get("REWARDPOOL_TRAINER_PYTHON") or str(ROOT / ".rewardpool/venvs/trainer/bin/python")
    if not Path(python).exists():
        pytest.skip(f"needs torch to build a model: run `make setup-trainer` (no {python})")
    subprocess.run([python, str(QUICKSTART / "models.py")], check=True, capture_output=True, timeout=300)
    return load_manifest(QUICKSTART / "pool.yaml")


@contextmanager
def running_vllm(spec: RewardPoolSpec, served_name: str, folder: Path) -> Iterator[VllmServer]:
    """A real vLLM behind the score middleware, started as a pool's worker is; files and logs go into the folder."""
    target = target_in(folder, served_name=served_name)
    launch = engine_for(spec.engine.name).launch(spec, target)
    url = f"http://{target.host}:{target.port}"
    with RealProcess(launch.argv, env=launch.env, log=folder / "vllm.log", cwd=folder) as process:
        ready = url + names.READY_PATH
        process.until(lambda: http("GET", ready)[0] == 200, seconds=START_SECONDS, what="vLLM scores")
        yield VllmServer(url, KEY, served_name, spec.engine.max_model_len or 0, process.log)


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A real vLLM that serves the quick start's reward model behind the score middleware."""
    server_python()
    pool = quickstart_pool()
    with running_vllm(pool.spec, pool.served_name, tmp_path_factory.mktemp("vllm")) as server:
        yield server


@pytest.fixture(scope="session")
def judge_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A real vLLM that writes: it serves the quick start's policy, to judge by."""
    server_python()
    spec = quickstart_pool().spec.model_dump(by_alias=True, exclude_unset=True)
    folder = Path(spec["model"]["source"].removeprefix("file://")).with_name("policy")
    spec["model"] = {"source": f"file://{folder}", "type": "Generative"}
    spec["engine"]["args"] += ["--structured-outputs-config", HELD]
    # A token is a byte of the question.
    spec["engine"]["maxModelLen"] = 1024
    with running_vllm(RewardPoolSpec.model_validate(spec), "judge", tmp_path_factory.mktemp("judge")) as server:
        yield server

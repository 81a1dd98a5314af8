"""The state folder of a local pool, as discovery reads it, without processes; a test says where its URL leads."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rewardpool_api import names
from rewardpool_api.demand import Demand
from rewardpool_api.model import ModelType
from rewardpool_runtime.state_files import DEMANDS_DIR

POOL = "rl/skywork"
JOB = "grpo-7"
REVISION = "5f1c0de5"
"""As FakeWorker's."""


def write_local_pool(
    state_dir: Path,
    *,
    url: str = "http://127.0.0.1:9",
    source: str = "hf://org/model",
    model_type: ModelType = "Discriminative",
    head: dict[str, Any] | None = None,
    revisions: Sequence[dict[str, Any]] = (),
    engine: dict[str, Any] | None = None,
    workers: Mapping[str, str] | None = None,
) -> Path:
    """Make the folder of `POOL`, which serves that model and is ready to score at that URL, and return it.

    `workers` has the URL of each worker, by its name.
    """
    folder = state_dir / POOL
    folder.mkdir(parents=True, exist_ok=True)
    namespace, _, name = POOL.partition("/")
    serving = {"type": "Serving", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pool = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"source": source}
            | ({} if model_type == "Function" else {"type": model_type})
            | ({} if head is None else {"head": head}),
            "engine": engine or {},
        },
        "status": {
            "replicas": 1,
            "currentRevision": REVISION,
            "workers": [
                {"name": worker, "url": its, "revision": REVISION, "phase": "Ready"}
                for worker, its in (workers or {}).items()
            ],
            "url": url,
            "model": {"type": model_type, "servedName": name, "revisions": list(revisions)},
            "conditions": [serving],
        },
    }
    (folder / names.STATE_FILE).write_text(json.dumps(pool))
    return folder


def environ_of(state_dir: Path) -> dict[str, str]:
    """Environment of a job that finds this machine's pools, and no cluster."""
    return {names.ENV_STATE_DIR: str(state_dir), "KUBECONFIG": str(state_dir / "none"), names.ENV_JOB: JOB}


def on_this_machine(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> None:
    """Give the test's own process that environment."""
    for name, value in environ_of(state_dir).items():
        monkeypatch.setenv(name, value)


def demand_file(folder: Path) -> Path:
    """Where `JOB` announces its demand."""
    return folder / DEMANDS_DIR / f"{JOB}.json"


def announced(folder: Path) -> Demand | None:
    """What `JOB` announces; None before it does."""
    file = demand_file(folder)
    if not file.exists():
        return None
    record: dict[str, Any] = json.loads(file.read_text())
    return Demand.model_validate(record["demand"])

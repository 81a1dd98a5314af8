"""Tests that need torch; `make test` runs them with the trainer's interpreter, which has it."""

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.torchrun import RanksDid

# Before torch is imported, and for every process that tests start. Layers this small gain nothing from a second thread,
# and where another suite has the other core each operation waits for it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

HAS_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore_glob = [] if HAS_TORCH else ["test_*.py"]


def pytest_report_header() -> str:
    """Say why nothing is collected, if so."""
    if HAS_TORCH:
        return "trainer_torch: torch found"
    return "trainer_torch: left out, there is no torch here; run it with the trainer's interpreter (make test)"


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random policy and a tokenizer."""
    from support import tiny_policy

    folder = tmp_path_factory.mktemp("policy")
    tiny_policy.make_policy(seed=0).save_pretrained(folder)
    tiny_policy.make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def ranks_did(tmp_path_factory: pytest.TempPathFactory) -> dict[int, "RanksDid"]:
    """By their number, what one rank and two did by `rank_jobs`; the two over gloo, started by torchrun."""
    import torch
    from support.rank_jobs import RESULTS
    from support.torchrun import RanksDid, run_job

    did = {}
    for ranks in (1, 2):
        folder = tmp_path_factory.mktemp(f"ranks-{ranks}-")
        run = run_job("support.rank_jobs", folder, ranks=ranks, seconds=300)
        assert run.returncode == 0, run.stderr
        did[ranks] = RanksDid(folder, torch.load(folder / RESULTS, weights_only=False))
    return did


@pytest.fixture
def policy() -> Any:
    """A random policy of some thousand weights."""
    from support import tiny_policy

    return tiny_policy.make_policy(seed=0)

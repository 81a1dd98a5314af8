"""Tests of the adapters on the real frameworks; `make test` runs them with an interpreter that has those."""

import asyncio
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleet import ROOT
from support.local_machine import POOL, LocalMachine, local_machine

# As for the actor's tests: models this small gain nothing from a second thread, and wait for it beside another suite.
os.environ.setdefault("OMP_NUM_THREADS", "1")

MISSING = [name for name in ("verl", "trl", "openrlhf", "skyrl_gym", "ray") if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_report_header() -> str:
    """Say why nothing is collected, if so."""
    if not MISSING:
        return "frameworks: verl, TRL, OpenRLHF, SkyRL and Ray found"
    return f"frameworks: left out, there is no {' and no '.join(MISSING)} here; run them by `make test`"


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMachine]:
    """A machine on which pools run for a whole session; its command line and its workers are this interpreter's."""
    with local_machine(tmp_path_factory.mktemp("machine")) as machine:
        machine.environ["PYTHONPATH"] = str(ROOT / "tests")
        yield machine


@pytest.fixture(scope="session")
def function_pool(machine: LocalMachine) -> str:
    """A pool of two workers with a reward function."""
    model = {"source": "python://support.reward_functions:compute_score", "type": "Function"}
    asyncio.run(machine.up(model=model, replicas=2))
    return POOL


@pytest.fixture(scope="session")
def policy_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tokenizer of a policy that writes digits."""
    from support import tiny_policy

    folder = tmp_path_factory.mktemp("policy")
    tiny_policy.make_tokenizer().save_pretrained(folder)
    return folder

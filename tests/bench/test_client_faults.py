"""`make client-faults`: a small run of every fault, and that its counts are what they are called."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from client_faults.faults import FAULTS
from client_faults.tally import Tally, count
from support.fleet import server_python

from cluster import packages
from rewardpool import Outcome, Scored, Unscored
from rewardpool._client.report import Counters
from rewardpool.errors import SampleError, ScoreError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of a run with few samples and a short outage."""
    server_python()  # skips where there is no router
    if missing := packages.missing(packages.TEST_PACKAGES):
        pytest.skip(f"needs {', '.join(missing)} to cut the wires of a network of its own: run `make packages`")
    out = tmp_path_factory.mktemp("faults") / "client_faults.json"
    done = subprocess.run(
        [sys.executable, "-m", "client_faults", "--samples=300", "--outage-seconds=3", f"--out={out}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("bench", "e2e", "tests"))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if not out.exists():
        pytest.fail(f"the run ended with {done.returncode}:\n{done.stderr[-5000:]}")
    faults: dict[str, Any] = json.loads(out.read_text())["faults"]
    return faults


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.key)
def test_no_fault_loses_invents_or_swaps_a_score(fault: Any, small_run: dict[str, Any]) -> None:
    result = small_run[fault.key]
    assert {"samples": 300, "lost": 0, "wrong": 0, "invented": 0, "uneven": False}.items() <= result.items(), result


@pytest.mark.real
@pytest.mark.long
def test_the_faults_are_felt(small_run: dict[str, Any]) -> None:
    assert small_run["workers_packets_dropped"]["hedges_won"] > 0
    assert small_run["worker_hangs"]["hedges_won"] > 0
    assert small_run["worker_sends_invalid_responses"]["retries"]["invalid_response"] > 0
    assert small_run["router_restarted"]["retried"] > 0
    assert small_run["url_and_key_changed"]["retried"] > 0
    assert small_run["all_workers_gone"]["slowest_seconds"] > 3
    assert small_run["network_cut"]["slowest_seconds"] > 4


def tally_of(outcomes: dict[int, Outcome], *, noted: list[str]) -> Tally:
    """Of the texts "a" and "b", whose scores are 1 and 2."""
    return count(["a", "b"], outcomes, noted=noted, reports=[], expected={"a": 1.0, "b": 2.0}.__getitem__)


def scored(value: float, *, seconds: float = 0.1, penalised_for: SampleError | None = None) -> Scored:
    return Scored(value=value, attempts=1, seconds=seconds, penalised_for=penalised_for)


def test_every_sample_with_its_own_score_from_a_worker_is_all_that_is_asked() -> None:
    tally = tally_of({0: scored(1.0), 1: scored(2.0, seconds=0.5)}, noted=["a", "b", "b"])

    assert tally.kept
    assert (tally.scored_again, tally.slowest_seconds) == (1, 0.5)


def test_a_sample_without_an_outcome_and_one_with_an_error_are_lost() -> None:
    assert tally_of({0: scored(1.0)}, noted=["a", "b"]).lost == 1
    failed = Unscored(error=ScoreError("b", "nobody knows"), attempts=6, seconds=1.0)
    tally = tally_of({0: scored(1.0), 1: failed}, noted=["a"])
    assert (tally.lost, tally.kept) == (1, False)
    assert "nobody knows" in tally.problems[0]


def test_the_score_of_another_text_is_wrong() -> None:
    tally = tally_of({0: scored(2.0), 1: scored(2.0)}, noted=["a", "b"])
    assert (tally.wrong, tally.invented, tally.kept) == (1, 0, False)


def test_a_score_that_no_worker_gave_is_invented() -> None:
    assert tally_of({0: scored(1.0), 1: scored(2.0)}, noted=["a"]).invented == 1
    assert (
        tally_of({0: scored(1.0), 1: scored(2.0, penalised_for=ScoreError("b", "failed"))}, noted=["a", "b"]).invented
        == 1
    )


def test_a_report_that_does_not_add_up_is_told() -> None:
    ledger = Counters(samples=2, scored=1)
    tally = count(["a"], {0: scored(1.0)}, noted=["a"], reports=[ledger.report()], expected=lambda _: 1.0)
    assert tally.uneven
    assert not tally.kept

"""`make simulate-peers`: other projects' autoscalers on traces, set up like RewardPool's policies."""

import json
from pathlib import Path

import pytest
from autoscaler.peers import PEERS
from autoscaler.policies import NAMES, factories_for
from autoscaler.traces import main

from rewardpool_simulator.run import PolicyRun, simulate
from rewardpool_simulator.trace import Trace, parse_trace

TRACE = """
seconds: 900
fleet:
  maxReplicas: 4
  startSeconds: {seconds: 30}
  serviceSeconds: {type: Lognormal, seconds: 1, shape: 0.3}
  concurrency: 4
figures: {targetPerReplica: 8, drainSeconds: 5, cooldownSeconds: 120}
jobs:
  - {name: job, steps: 4, samples: 200, startsAtSeconds: 60, loadSeconds: 60, arrivals: AtOnce,
     rolloutSeconds: {type: Uniform, seconds: 40, mostSeconds: 50}, updateSeconds: {seconds: 60}}
"""
FAULTS = {
    "losses": [{"atSeconds": second, "share": 0.5} for second in range(200, 700, 50)],
    "shortages": [{"fromSeconds": 300, "untilSeconds": 400, "replicas": 1}],
    "blind": [{"fromSeconds": 350, "untilSeconds": 380}],
}


def run(policy: str, *, faults: object = None, seed: int = 0) -> PolicyRun:
    plain = parse_trace(TRACE, name="small").model_dump(by_alias=True)
    trace = Trace.model_validate(plain | ({"faults": faults} if faults else {}))
    return simulate(trace, factories_for(trace)[policy], seed=seed)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(TRACE)
    return str(path)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_s_run_with_the_same_seed_is_the_same_and_with_another_one_is_not(name: str) -> None:
    first = run(name)
    assert first == run(name)
    assert first.jobs != run(name, seed=1).jobs


@pytest.mark.parametrize("name", PEERS)
def test_every_sample_is_answered_once_under_every_peer(name: str) -> None:
    done = run(name, faults=FAULTS)
    assert done.finished
    assert done.answered == 4 * 200


def test_a_peer_without_metrics_keeps_the_size() -> None:
    assert run("kubeai", faults={"blind": [{"fromSeconds": 0, "untilSeconds": 90_000}]}).changes == 0


def test_our_policies_come_first() -> None:
    assert list(factories_for(parse_trace(TRACE, name="small"))) == list(NAMES)
    assert NAMES[-len(PEERS) :] == tuple(PEERS)


def test_a_trace_is_compared_in_a_table_and_in_a_chart(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chart = tmp_path / "chart.png"
    main(["--trace", trace, "--policy", "demand", "hpa", "--plot", str(chart)])
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert shown[:-1] == ["small", "policy", "demand", "hpa"]
    assert shown[-1].startswith("always-on-")
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_figures_are_json_by_trace_and_policy(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--trace", trace, "--policy", "keda", "--json"])
    figures = json.loads(capsys.readouterr().out)["traces"]["small"]["keda"]
    assert figures["finished"] is True
    assert figures["stall_seconds"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--trace", "nowhere"], "sync-grpo"),
        (["--policy", "magic"], "aibrix-kpa"),
        (["--plot", "chart.bmp"], ".png"),
        (["--plot", "nowhere/chart.png"], ".png"),
    ],
)
def test_what_cannot_be_compared_or_drawn_is_refused_at_once(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err

"""`rewardpool simulate`: what it prints, and what it refuses."""

import json

import pytest
from typer.testing import CliRunner

from rewardpool_cli import app
from rewardpool_cli.errors import RefusedError
from rewardpool_simulator import builtin
from rewardpool_simulator.trace import parse_trace

TRACE = """
seconds: 600
fleet: {maxReplicas: 4, startSeconds: {seconds: 30}, serviceSeconds: {seconds: 1}, concurrency: 4}
figures: {targetPerReplica: 8}
jobs:
  - {name: job, steps: 2, samples: 100, startsAtSeconds: 60, loadSeconds: 60, rolloutSeconds: {seconds: 20},
     arrivals: AtOnce, updateSeconds: {seconds: 20}}
"""
MANIFEST = """
apiVersion: rewardpool.dev/v1alpha1
kind: RewardPool
metadata: {name: pool}
spec:
  model: {source: "python://rewards:score", type: Function}
  engine: {name: python}
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TRACE)
    return str(path)


def simulate(*arguments):
    result = CliRunner().invoke(app, ["simulate", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_a_line_per_policy_and_one_for_the_fleet_that_is_always_on(trace):
    lines = simulate("--trace", trace, "--policy", "demand", "--policy", "queue-depth").splitlines()
    title, *rows, last = [line.split()[0] for line in lines if line.strip()]
    assert (title, rows) == ("mine", ["policy", "demand", "queue-depth"])
    assert last.startswith("always-on-")


def test_json_has_seconds_and_changes_by_trace_and_policy(trace):
    figures = json.loads(simulate("--trace", trace, "--policy", "drain-time", "--json"))["traces"]["mine"]["drain-time"]
    assert figures["finished"] is True
    assert figures["stall_seconds"] > 0
    assert figures["gpu_seconds"] > 0
    assert figures["changes"] >= 2


def test_a_pool_s_manifest_is_a_policy(trace, tmp_path):
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(
        MANIFEST + "  autoscaling: {maxReplicas: 4, policy: {type: QueueDepth, queueDepth: {targetPerReplica: 8}}}\n"
    )
    told = json.loads(simulate("--trace", trace, "--policy", "queue-depth", "--manifest", str(manifest), "--json"))
    assert {"manifest", "queue-depth"} < told["traces"]["mine"].keys()


@pytest.mark.parametrize(
    ("scaling", "words"),
    [("", "autoscaling is not set"), ("  autoscaling: {maxReplicas: 4, policy: {type: External}}\n", "External")],
)
def test_a_manifest_by_which_nothing_is_decided_is_refused(trace, tmp_path, scaling, words):
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(MANIFEST + scaling)
    with pytest.raises(RefusedError, match=words):
        simulate("--trace", trace, "--manifest", str(manifest))


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--trace", "nowhere"], "sync-grpo"), (["--policy", "hpa"], "queue-depth")]
)
def test_unknown_names_are_refused_with_those_there_are(arguments, words):
    with pytest.raises(RefusedError, match=words):
        simulate(*arguments)


@pytest.mark.parametrize("name", builtin.NAMES)
def test_a_trace_that_comes_with_the_package_is_printed_as_a_file_that_can_be_simulated(name):
    shown = CliRunner().invoke(app, ["trace", "show", name]).stdout
    assert parse_trace(shown, name=name) == builtin.load_trace(name)


BUDGET = """
seconds: 300
budget: 2
pools:
  - {name: teacher, fleet: {maxReplicas: 2, startSeconds: {seconds: 5}, serviceSeconds: {seconds: 1}, concurrency: 4}}
jobs:
  - {name: job, steps: 2, samples: 20, rolloutSeconds: {seconds: 20}, arrivals: AtOnce, updateSeconds: {seconds: 20},
     asks: [{teacher: 1}]}
"""


def test_a_budget_has_a_line_per_pool_with_the_idle_share_of_a_fixed_fleet(tmp_path):
    path = tmp_path / "budget.yaml"
    path.write_text(BUDGET)
    figures = json.loads(simulate("--budget", str(path), "--json"))
    assert figures["fixed"]["pools"]["teacher"]["idle_share"] > 0.5
    assert [line.split()[0] for line in simulate("--budget", str(path)).splitlines()][1:] == ["pool", "teacher", "all"]


def test_a_budget_that_is_not_valid_is_refused_by_its_field(tmp_path):
    path = tmp_path / "budget.yaml"
    path.write_text(BUDGET.replace("budget: 2", "budget: 0"))
    with pytest.raises(RefusedError, match=r"budget\.yaml: budget: "):
        simulate("--budget", str(path))


def test_a_budget_is_simulated_alone(trace):
    with pytest.raises(RefusedError, match="--budget cannot be combined"):
        simulate("--budget", "budget", "--trace", trace)

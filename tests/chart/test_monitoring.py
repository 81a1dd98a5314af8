"""Alerts and dashboards: every expression is PromQL, and names metrics that operator, workers or real routers have."""

import json
import shutil
import string
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics_core import Metric

from dashboards.panels import dashboards, metric_names
from dashboards.recording import RECORDED, names_of
from rewardpool_operator.metrics import Metrics
from rewardpool_worker.engine_side.worker_metrics import WorkerMetrics

from .conftest import CHART, HelmError, Render

THRESHOLDS = yaml.safe_load((CHART / "values.yaml").read_text())["metrics"]["alerts"]["thresholds"]
ALERTS = yaml.safe_load(string.Template((CHART / "files" / "alerts.yaml").read_text()).safe_substitute(THRESHOLDS))[
    "rules"
]
DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "gauge": [""]}
GRAFANA = {"__rate_interval": "5m", "namespace": "rl", "pool": "skywork"}


def families() -> list[Metric]:
    return [*Metrics().registry.collect(), *WorkerMetrics().registry.collect()]


def our_metrics() -> set[str]:
    return {family.name + suffix for family in families() for suffix in SUFFIXES[family.type]}


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    for dashboard in dashboards():
        for panel in dashboard.panels:
            for query in panel.queries:
                yield f"{dashboard.name}: {panel.title}", query.filled(GRAFANA)


EXPRESSIONS = [*((rule["alert"], rule["expr"]) for rule in ALERTS), *dashboard_expressions()]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_an_expression_asks_for_metrics_that_there_are(where: str, expression: str) -> None:
    asked = metric_names(expression)
    assert asked
    assert asked <= our_metrics() | names_of(RECORDED), where


def test_every_metric_of_ours_is_on_a_dashboard() -> None:
    shown = {name for _, expression in dashboard_expressions() for name in metric_names(expression)}
    ours = {family.name for family in families() if family.name.startswith("rewardpool_")}
    assert not {name for name in ours if not {name, f"{name}_total", f"{name}_bucket"} & shown}


def test_an_alert_names_the_pool_whose_step_fails_before_the_status_can() -> None:
    (rule,) = [rule for rule in ALERTS if "rewardpool_pool_failing_since_timestamp_seconds" in rule["expr"]]
    summary = rule["annotations"]["summary"]
    assert all(f"{{{{ $labels.{label} }}}}" in summary for label in ("namespace", "pool", "step", "reason"))


def test_every_alert_is_documented() -> None:
    page = (CHART.parents[1] / "docs" / "helm.md").read_text()
    assert [rule["alert"] for rule in ALERTS if rule["alert"] not in page] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool evaluates the expression")
@pytest.mark.parametrize(
    ("desired", "ready", "fires"),
    [
        pytest.param(0, 0, True, id="at zero and cannot wake"),
        pytest.param(0, 1, False, id="suspended"),
        pytest.param(2, 1, True, id="serves"),
    ],
)
def test_the_alert_on_a_size_that_is_held(desired: int, ready: int, fires: bool, tmp_path: Path) -> None:
    conditions = {"ScalingActive": 0, "Ready": ready}
    assert_fires("RewardPoolSizeHeld", conditions, desired, fires, tmp_path)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool evaluates the expression")
@pytest.mark.parametrize(
    ("desired", "router_ready", "ready", "fires"),
    [
        pytest.param(0, 0, 0, True, id="at zero, no router answers"),
        pytest.param(0, 0, 1, False, id="suspended, or another router answers"),
        pytest.param(0, 1, 0, False, id="a gateway is missing"),
        pytest.param(2, 0, 0, False, id="wants to serve, which is another alert's"),
    ],
)
def test_the_alert_on_a_pool_at_zero_without_its_router(
    desired: int, router_ready: int, ready: int, fires: bool, tmp_path: Path
) -> None:
    conditions = {"RouterReady": router_ready, "Ready": ready}
    assert_fires("RewardPoolRouterGone", conditions, desired, fires, tmp_path)


def assert_fires(name: str, conditions: Mapping[str, int], desired: int, fires: bool, folder: Path) -> None:
    (rule,) = [rule for rule in ALERTS if rule["alert"] == name]
    labels = '{namespace="rl",pool="rm"}'
    series = {f'rewardpool_pool_condition{{type="{kind}",{labels[1:]}': value for kind, value in conditions.items()}
    series[f'rewardpool_pool_replicas{{state="desired",{labels[1:]}'] = desired
    expected = {
        "expr": f"count by (namespace, pool) ({rule['expr']})",
        "eval_time": "1m",
        "exp_samples": [{"labels": labels, "value": 1}] if fires else [],
    }
    given = [{"series": name, "values": f"{value}x5"} for name, value in series.items()]
    test = folder / "test.yaml"
    test.write_text(yaml.safe_dump({"tests": [{"input_series": given, "promql_expr_test": [expected]}]}))
    done = subprocess.run(["promtool", "test", "rules", test], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_how_bad_it_is_and_what_to_look_at(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboards_panels_have_room_of_their_own(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(path.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def rendered_alerts(render: Render, **values: object) -> list[dict[str, Any]]:
    objects = render(metrics={"alerts": {"enabled": True, **values}})
    (rule,) = [item for item in objects if item["kind"] == "PrometheusRule"]
    alerts: list[dict[str, Any]] = rule["spec"]["groups"][0]["rules"]
    return alerts


def test_alerts_are_rendered_with_the_thresholds_of_the_values(render: Render) -> None:
    assert rendered_alerts(render) == ALERTS


@pytest.mark.parametrize("name", THRESHOLDS)
def test_every_threshold_is_a_value(render: Render, name: str) -> None:
    changed = rendered_alerts(render, thresholds={name: 77})
    (alert,) = [rule for rule, default in zip(changed, ALERTS, strict=True) if rule != default]
    assert "77" in alert["expr"] + alert.get("for", "")


def test_a_threshold_that_does_not_exist_is_refused(render: Render) -> None:
    with pytest.raises(HelmError, match="notServing"):
        render(metrics={"alerts": {"thresholds": {"notServing": 5}}})


def test_every_alert_leads_to_a_heading_of_its_runbook(render: Render) -> None:
    page = "https://docs.example/troubleshooting/"
    lines = (CHART.parents[1] / "docs" / "troubleshooting.md").read_text().splitlines()
    headings = {line.removeprefix("### ").lower() for line in lines if line.startswith("### ")}
    links = [alert["annotations"]["runbook_url"] for alert in rendered_alerts(render, runbooks=page)]
    assert {link.removeprefix(f"{page}#") for link in links} <= headings
    assert len({*links}) == len(ALERTS)


def test_alerts_carry_the_labels_that_route_them(render: Render) -> None:
    alerts = rendered_alerts(render, alertLabels={"team": "rl"})
    assert all(alert["labels"]["team"] == "rl" for alert in alerts)
    assert "{{ $labels.pool }}" in alerts[0]["annotations"]["summary"]


def test_dashboards_reach_grafana_as_they_are(render: Render) -> None:
    maps = [item for item in render(metrics={"dashboards": {"enabled": True}}) if item["kind"] == "ConfigMap"]
    shown = {name: json.loads(text) for item in maps for name, text in item["data"].items()}
    assert shown == {path.name: json.loads(path.read_text()) for path in DASHBOARDS}
    assert all(item["metadata"]["labels"]["grafana_dashboard"] == "1" for item in maps)

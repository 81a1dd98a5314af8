"""The dashboards against a real run: a real Prometheus answers every query of every panel from what it recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.panels import Dashboard, Panel, dashboards
from dashboards.picture import draw
from dashboards.prometheus import Prometheus, prometheus
from dashboards.recording import RECORDED, Recording, asking, restore

pytestmark = pytest.mark.real

PANELS = [(dashboard.name, panel) for dashboard in dashboards() for panel in dashboard.panels]
OF_FAILURES = {
    "operator: Failed passes",
    "operator: Objects put back",
    "operator: Left out, for it makes no sense",
    "operator: Steps of passes that fail",
    "operator: Namespaces that are not served",
    "requests: Failures, by kind",
    "requests: Calls that failed, by replica",
}
"""Panels of what went wrong, which nothing need have in the recorded run."""
OF_OTHER_JOBS = {"pool: First score"}
"""The recorded job announces its bursts, so none of its requests comes to a pool at zero."""
OF_GPUS = {"pool: GPUs, by job", "pool: Samples a second, by job"}
"""The recorded pool has no GPUs, and so no costs."""

OF_TEACHERS = {"pool: Tokens at the routers"}
"""The recorded pool is of a function, whose requests have no tokens."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return restore(RECORDED, tmp_path_factory.mktemp("recording"))


@pytest.fixture(scope="module")
def server(run: Recording) -> Iterator[Prometheus]:
    with prometheus(run.storage, log=run.storage.parent / "prometheus.log") as started:
        yield started


@pytest.mark.parametrize(("dashboard", "panel"), PANELS, ids=[f"{name}: {panel.title}" for name, panel in PANELS])
def test_a_panel_shows_what_happened(dashboard: str, panel: Panel, server: Prometheus, run: Recording) -> None:
    for query in panel.queries:
        series = asking(server, run)(query)
        assert series or f"{dashboard}: {panel.title}" in OF_FAILURES | OF_OTHER_JOBS | OF_GPUS | OF_TEACHERS, (
            query.expression
        )
        names = [query.name_of(each.labels) for each in series]
        assert "{{" not in "".join(names), "a label of the legend is missing"
        assert len(set(names)) == len(names), "two lines have one name"


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda dashboard: dashboard.name)
def test_a_dashboard_is_drawn(dashboard: Dashboard, server: Prometheus, run: Recording, tmp_path: Path) -> None:
    draw(dashboard, asking(server, run), tmp_path / "picture.png", start=run.start, end=run.end)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")

"""What a dashboard of the chart shows: its panels and their queries, read from the JSON that Grafana gets."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import promql_parser

from cluster.folders import REPOSITORY

FOLDER: Final = REPOSITORY / "charts" / "rewardpool" / "files" / "dashboards"


@dataclass(frozen=True)
class Query:
    """A query of a panel."""

    expression: str
    """PromQL, Grafana's variables included."""
    legend: str
    """The name of a series, with `{{label}}` for a label's value."""

    def filled(self, variables: Mapping[str, str]) -> str:
        """The expression with `$name` replaced by each variable's value."""
        expression = self.expression
        for name, value in variables.items():
            expression = expression.replace(f"${name}", value)
        return expression

    def name_of(self, labels: Mapping[str, str]) -> str:
        """What the legend calls a series with these labels."""
        name = self.legend
        for label, value in labels.items():
            name = name.replace(f"{{{{{label}}}}}", value)
        return name


@dataclass(frozen=True)
class Panel:
    """A panel with its place on Grafana's grid of 24 columns."""

    title: str
    kind: str
    """Grafana's type, such as `timeseries`."""
    unit: str
    x: int
    y: int
    width: int
    height: int
    queries: tuple[Query, ...]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard's title and panels."""

    name: str
    """Of its file, without the ending."""
    title: str
    panels: tuple[Panel, ...]


def dashboards() -> tuple[Dashboard, ...]:
    """All dashboards of the chart, by name."""
    return tuple(_dashboard(path) for path in sorted(FOLDER.glob("*.json")))


def metric_names(expression: str) -> frozenset[str]:
    """The metrics that an expression asks for.

    Raises:
        ValueError: it is no PromQL.
    """
    names: set[str] = set()

    def keep(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector) and node.name is not None:
            names.add(node.name)
        return True

    promql_parser.walk(promql_parser.parse(expression), keep)
    return frozenset(names)


def _dashboard(path: Path) -> Dashboard:
    read: dict[str, Any] = json.loads(path.read_text())
    return Dashboard(name=path.stem, title=read["title"], panels=tuple(_panels(read["panels"])))


def _panels(panels: list[dict[str, Any]]) -> Iterator[Panel]:
    for panel in panels:
        at = panel["gridPos"]
        yield Panel(
            title=panel["title"],
            kind=panel["type"],
            unit=panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short"),
            x=at["x"],
            y=at["y"],
            width=at["w"],
            height=at["h"],
            queries=tuple(Query(target["expr"], target.get("legendFormat", "")) for target in panel["targets"]),
        )

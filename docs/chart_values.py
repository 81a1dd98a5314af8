"""The README of the Helm chart, and the descriptions in its values.schema.json: `python docs/chart_values.py FILE`.

Both are made from the values and their comments. A value's meaning is the comment above it and the one behind it;
indented lines of a comment are an example.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from rewardpool_api.generated import write_or_check

CHART = Path(__file__).parents[1] / "charts" / "rewardpool"
HEADER = """# Values of the Helm chart

<!-- made from values.yaml by `make reference` -->

{description} Version {version}, Kubernetes {kubernetes}.

```
helm install rewardpool charts/rewardpool --namespace rewardpool-system --create-namespace \\
  --set image.repository=REGISTRY/rewardpool --set-json 'watch.namespaces=["NAMESPACE"]'
```

Without `watch.namespaces` the operator has its rights in the whole cluster.

Upgrades, several releases, alerts: `docs/helm.md` of the project. A misspelt value fails the command and is named.

| value | default | meaning |
|---|---|---|
"""


def rows(node: yaml.MappingNode, lines: Sequence[str], path: str = "") -> Iterator[tuple[str, str, str]]:
    """Path, default and meaning of every value, and of every group that has a comment."""
    for key, value in node.value:
        here = f"{path}.{key.value}" if path else key.value
        meaning = _meaning(key, value, lines)
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            if meaning:
                yield here, "", meaning
            yield from rows(value, lines, here)
        else:
            yield here, f"`{json.dumps(_plain(value))}`", meaning


def _meaning(key: yaml.Node, value: yaml.Node, lines: Sequence[str]) -> str:
    first = key.start_mark.line
    begin = first
    while begin > 0 and lines[begin - 1].strip().startswith("#") and _column(lines[begin - 1]) == key.start_mark.column:
        begin -= 1
    above = [line.strip().removeprefix("#") for line in lines[begin:first]]
    # A comment behind a value; of one over several lines, behind its first.
    is_short = value.start_mark.line == first
    behind = lines[first][value.end_mark.column if is_short and value.end_mark.line == first else 0 :]
    comment = behind.partition(" # ")[2].strip() if " # " in behind else ""
    text = [line.strip() for line in above if not line.startswith("   ")]
    example = [f"<br>`{line.strip()}`" for line in above if line.startswith("   ")]
    return " ".join([*text, *([comment] if comment else []), *example]).replace("|", "\\|")


def _column(line: str) -> int:
    return len(line) - len(line.lstrip())


def _plain(node: yaml.Node) -> Any:
    return yaml.safe_load(yaml.serialize(node))


def values() -> list[tuple[str, str, str]]:
    """The rows of all values."""
    text = (CHART / "values.yaml").read_text()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise TypeError("values.yaml is no mapping")
    return list(rows(root, text.splitlines()))


def page() -> str:
    """The README as Markdown."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    head = HEADER.format(
        description=chart["description"],
        version=chart["version"],
        kubernetes=chart["kubeVersion"].removesuffix("-0").replace(">=", "") + " or newer",
    )
    table = [f"| `{path}` | {default} | {meaning} |\n" for path, default, meaning in values()]
    return head + "".join(table)


def schema() -> str:
    """The schema of the values with a description of each, as JSON."""
    made = json.loads((CHART / "values.schema.json").read_text())
    for path, _, meaning in values():
        description = re.sub("<br>.*", "", meaning).replace("\\|", "|").strip()
        place = made
        for name in path.split("."):
            place = made["definitions"][place["$ref"].rpartition("/")[2]] if "$ref" in place else place
            place = place.get("properties", {}).get(name, {})
        place["description"] = description
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    made = schema() if sys.argv[-1].endswith(".json") else page()
    sys.exit(write_or_check(made, description=__doc__, target="reference"))

"""The popular models in the page of models, made from `cli/rewardpool_cli/catalogue/entries.yaml`.

`python docs/reward_models.py docs/models.md`
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from rewardpool_api.generated import write_or_check
from rewardpool_cli.catalogue.entries import ENTRIES
from rewardpool_cli.catalogue.entry import Entry
from rewardpool_cli.catalogue.manifest import as_yaml

BEGIN, END = "<!-- models: made by `make reference` -->\n", "<!-- end of models -->\n"
_NOT_SERVED = "\n### Not served\n\n`rewardpool init` refuses these.\n"
_MANIFESTS = "\n### Manifests\n"


def catalogue() -> str:
    """The catalogue as Markdown: tables, and a manifest for each model that is served."""
    served = [entry for entry in ENTRIES if entry.spec is not None]
    others = [entry for entry in ENTRIES if entry.spec is None]
    parts = [
        *_table(
            ("models", "class", "score", "`rewardpool models`", "engines", "run", "mind"),
            (
                (*_described(one), f"[{one.name}](#{one.name})", one.engines, one.run or "not run", one.notes)
                for one in served
            ),
        ),
        _NOT_SERVED,
        *_table(
            ("models", "class", "score", "why not", "run"),
            ((*_described(entry), entry.notes, entry.run or "not run") for entry in others),
        ),
        _MANIFESTS,
        *(f"#### {entry.name}\n\n```yaml\n{as_yaml(entry.manifest)}```\n" for entry in served if entry.manifest),
    ]
    return "\n".join(parts)


def _described(entry: Entry) -> tuple[str, str, str]:
    repositories = ", ".join(f"`{repository}`" for repository in entry.repositories)
    return repositories, f"`{entry.architecture}`" if " " not in entry.architecture else entry.architecture, entry.kind


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def page(text: str) -> str:
    """The page with a new catalogue."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + catalogue() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    file = next(argument for argument in sys.argv[1:] if not argument.startswith("-"))
    sys.exit(write_or_check(page(Path(file).read_text()), description=__doc__, target="reference"))

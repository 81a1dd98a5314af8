"""The page of reward models, made from the catalogue: `python docs/reward_models.py FILE`."""

import sys
from collections.abc import Iterable

from rewardpool_api.generated import write_or_check
from rewardpool_cli.catalogue.entries import ENTRIES
from rewardpool_cli.catalogue.entry import Entry
from rewardpool_cli.catalogue.manifest import as_yaml

_HEADER = """\
# Reward models

How the popular reward models are served. `make reference` makes this page from the catalogue,
`cli/rewardpool_cli/catalogue/entries.yaml`; at a terminal:

```
rewardpool models                             # this table
rewardpool models skywork-reward-v2-qwen3     # the manifest
rewardpool init --model hf://ORG/NAME         # the manifest of any model, from its config.json
```

**None of these models was run here**: what was run is a tiny one of the same class, on a CPU, with random weights.
Every manifest is checked against the CRD, and its command line against the parsers of vLLM and SGLang. The classes are
those that the models' pages name; `rewardpool init` reads config.json itself. GPUs are counted for cards of 80 GB.
"""
_SERVED = "\n## Served\n\nCompare the first scores with those on the model's page before you train on them.\n"
_MANIFESTS = "\n## Manifests\n"
_NOT_SERVED = """
## Not served

`rewardpool init` refuses these. What an engine answers without the model's own head is a number, and not a score: do
not rename a class to make it load.
"""
_REFUSED = """
## What `rewardpool init` goes by

| in config.json | manifest |
|---|---|
| a class `…ForSequenceClassification` that vLLM has, one label | Discriminative, on vLLM, in the weights' own format |
| the same, a class that only transformers has | Discriminative, on the engine transformers |
| the same, several labels, or nothing said of them, which means two | a head by `--weights`; refused without |
| `Qwen2ForRewardModel`, `Qwen2ForProcessRewardModel` | on vLLM, with a head for values per token |
| `auto_map` with a class that scores | the engine transformers, with `--trust-remote-code`; refused without |
| `…ForCausalLM`, `…ForConditionalGeneration` | Generative: a judge that writes |
| any other class | refused, by its name |

A model of this page gets its manifest from here, whatever config.json says. `spec.engine.maxModelLen` is what the model
takes, 16384 at most.
"""


def page() -> str:
    """The page as Markdown."""
    served = [entry for entry in ENTRIES if entry.spec is not None]
    others = [entry for entry in ENTRIES if entry.spec is None]
    parts = [
        _HEADER,
        _SERVED,
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
        _REFUSED,
        _MANIFESTS,
        *(f"### {entry.name}\n\n```yaml\n{as_yaml(entry.manifest)}```\n" for entry in served if entry.manifest),
    ]
    return "\n".join(parts)


def _described(entry: Entry) -> tuple[str, str, str]:
    repositories = ", ".join(f"`{repository}`" for repository in entry.repositories)
    return repositories, f"`{entry.architecture}`" if " " not in entry.architecture else entry.architecture, entry.kind


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


if __name__ == "__main__":
    sys.exit(write_or_check(page(), description=__doc__, target="reference"))

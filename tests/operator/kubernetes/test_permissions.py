"""The operator's rights, as documented and as needed."""

from pathlib import Path

import yaml
from support.permissions import RULES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "operator.md"


def test_the_documented_rights_are_those_of_the_code() -> None:
    block, _, _ = DOCUMENT.read_text().split("```yaml\n")[-1].partition("```")
    assert yaml.safe_load(block) == list(RULES)


def test_secrets_cannot_be_listed() -> None:
    (rule,) = (rule for rule in RULES if "secrets" in rule["resources"])
    assert not {"list", "watch", "delete"} & set(rule["verbs"])

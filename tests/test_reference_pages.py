"""The reference pages have all that the code has; `make lint` compares them with the code byte for byte."""

import re
from pathlib import Path

import rewardpool
import rewardpool_train
from rewardpool import errors
from rewardpool._config import RewardConfig
from rewardpool._rewards.part_config import FunctionPart, JudgeConfig, Part, PoolPart, ReasoningConfig
from rewardpool_api.pool import RewardPoolSpec
from rewardpool_api.reasons import ConditionReason
from rewardpool_cli.commands import COMMANDS
from rewardpool_train.config import TrainConfig

DOCS = Path(__file__).parents[1] / "docs"
TROUBLES = DOCS / "troubleshooting.md"
WORD = re.compile(r"`([A-Z][A-Za-z]+)`")


def rows(page: str) -> set[str]:
    """The first cells of a page's tables."""
    return set(re.findall(r"^\| \**`([^`]+)`", (DOCS / page).read_text(), re.MULTILINE))


def headings(page: str) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", (DOCS / page).read_text(), re.MULTILINE))


def test_every_part_of_a_spec_has_a_row_or_a_table() -> None:
    parts = {field.alias or name for name, field in RewardPoolSpec.model_fields.items()}
    tables = {heading.removeprefix("spec.").removesuffix("[]") for heading in headings("reference-api.md")}
    assert parts <= rows("reference-api.md") | tables


def test_every_command_has_a_table_with_its_options() -> None:
    assert {f"rewardpool {name}" for name in COMMANDS} <= headings("reference-cli.md")
    assert {"--detach", "--golden"} <= rows("reference-cli.md")


def test_every_key_of_a_config_has_a_row() -> None:
    keys = {*RewardConfig.model_fields, *JudgeConfig.model_fields, *TrainConfig.model_fields} - {"meta"}
    keys |= {*Part.model_fields, *PoolPart.model_fields, *FunctionPart.model_fields} - {"client", "judge"}
    keys |= {f"strip_reasoning.{name}" for name in ReasoningConfig.model_fields}
    assert keys <= rows("reference-config.md")
    assert {"rollout.vllm.python", "update.groups_per_minibatch"} <= rows("reference-config.md")


def test_every_public_name_has_a_heading() -> None:
    names = {f"{it.__name__}.{name}" for it in (rewardpool, rewardpool_train) for name in it.__all__ if name[0] != "_"}
    assert names <= headings("reference-python.md")


def test_the_words_of_the_troubleshooting_page_are_ones_that_are_said() -> None:
    shown = {
        name
        for cell in re.findall(r"^\| ([^|]*) \|", TROUBLES.read_text(), re.MULTILINE)
        for name in WORD.findall(cell)
    }
    columns = {"Waiting"}
    assert shown - set(ConditionReason) - {name for name in vars(errors) if name.endswith("Error")} == columns

"""`rewardpool init`: by flags, by four questions, and what it writes; models are tested with the catalogue."""

from pathlib import Path

import pytest
import yaml
from support.command_line import CommandLine, rewardpool
from typer.testing import CliRunner

from rewardpool._rewards.config import parse_reward
from rewardpool_api import load_manifest
from rewardpool_cli import app
from rewardpool_cli.commands import init

__all__ = ["rewardpool"]

FUNCTION = "python://rewards:compute_score"


def test_a_function_needs_no_gpu_and_no_config_json(rewardpool: CommandLine) -> None:
    ended = rewardpool("init", "--model", FUNCTION, "--name", "rl/rules", "--replicas", "3")
    pool = load_manifest(ended.out)
    assert (pool.key, pool.spec.worker.gpus, pool.spec.replicas) == ("rl/rules", 0, 3)


def test_a_size_of_two_numbers_follows_the_load(rewardpool: CommandLine) -> None:
    pool = load_manifest(rewardpool("init", "--model", FUNCTION, "--replicas", "0-4").out)
    assert pool.spec.autoscaling is not None
    assert (pool.spec.autoscaling.min_replicas, pool.spec.autoscaling.max_replicas) == (0, 4)
    assert pool.spec.replicas is None


def test_the_training_config_scores_by_that_pool(rewardpool: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    assert rewardpool("init", "--model", FUNCTION, "--name", "rl/rules", "--config", str(config)).code == 0
    (part,) = parse_reward(yaml.safe_load(config.read_text())["reward"]).parts
    assert "pool='rl/rules'" in repr(part)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--replicas", "4-0"], "--replicas must be a number such as 2, or two such as 0-4 with the smaller first"),
        (["--replicas", "0"], "--replicas must be"),
        (["--replicas", "many"], "not many"),
        (["--name", "Big"], "'Big' is not the name of a pool"),
        (["--name", "a" * 50], "at most 40 lower-case"),
        (["--name", "rl/1st"], "with a letter first"),
        (["--config", "/no/such/folder/train.yaml"], "cannot be written: No such file or directory"),
    ],
)
def test_what_no_pool_can_have_is_refused(rewardpool: CommandLine, arguments: list[str], words: str) -> None:
    ended = rewardpool("init", "--model", FUNCTION, *arguments)
    assert (ended.code, words in ended.sentence) == (2, True)


def test_without_a_terminal_nobody_is_asked(rewardpool: CommandLine) -> None:
    ended = rewardpool("init")
    assert (ended.code, ended.sentence.startswith("--model is missing: give hf://ORG/NAME")) == (2, True)


def test_four_questions_lead_to_a_manifest_and_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "in_terminal", lambda: True)
    answers = ["s3://bucket/no", FUNCTION, "", "0-2", str(tmp_path / "no"), str(tmp_path)]
    result = CliRunner().invoke(app, ["init"], input="\n".join(answers) + "\n")
    assert result.exit_code == 0, result.output
    pool = load_manifest(tmp_path / "pool.yaml")
    assert (pool.key, pool.spec.model.source) == ("default/compute-score", FUNCTION)
    assert yaml.safe_load((tmp_path / "train.yaml").read_text())["reward"]["pool"] == "default/compute-score"
    for words in ("not s3://bucket/no", "there is no folder"):
        assert words in result.stderr


def test_nothing_is_overwritten(rewardpool: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text("mine")
    ended = rewardpool("init", "--model", FUNCTION, "--config", str(config))
    assert (ended.code, "exists already" in ended.sentence, config.read_text()) == (2, True, "mine")

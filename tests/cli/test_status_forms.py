"""`rewardpool status -o FORM`: what programs read of pools on this machine."""

import json
from pathlib import Path

import pytest
import yaml
from support.command_line import CommandLine, rewardpool
from support.local_pool import POOL, on_this_machine, write_local_pool

from rewardpool_cli.errors import REFUSED

__all__ = ["rewardpool"]


@pytest.fixture(autouse=True)
def _a_pool_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_this_machine(monkeypatch, tmp_path)
    write_local_pool(tmp_path)


def test_a_pools_name_is_what_other_commands_take(rewardpool: CommandLine) -> None:
    assert rewardpool("status", "-o", "name").out == f"{POOL}\n"


@pytest.mark.parametrize("words", [(), (POOL,)], ids=["all", "one"])
def test_yaml_and_json_say_the_same(rewardpool: CommandLine, words: tuple[str, ...]) -> None:
    as_json = json.loads(rewardpool("status", *words, "-o", "json").out)
    assert yaml.safe_load(rewardpool("status", *words, "-o", "yaml").out) == as_json
    assert json.loads(rewardpool("status", *words, "--json").out) == as_json
    assert ("items" in as_json) == (words == ())


def test_wide_is_a_line_for_each_pool(rewardpool: CommandLine) -> None:
    titles, line = rewardpool("status", "-o", "wide").out.splitlines()
    assert titles.split()[-3:] == ["engine", "model", "revision"]
    assert line.startswith(POOL)


def test_two_forms_at_once_are_refused(rewardpool: CommandLine) -> None:
    ended = rewardpool("status", "--json", "-o", "wide")
    assert (ended.code, ended.sentence) == (REFUSED, "--json is -o json, and -o says wide: drop one of them")

"""The table of commands, and what is imported for it."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rewardpool_cli import app
from rewardpool_cli.commands import COMMANDS, LazyCommand


@pytest.mark.parametrize("name", COMMANDS)
def test_the_sentence_of_the_table_is_the_first_of_the_command(name: str) -> None:
    sentence = COMMANDS[name]
    assert " ".join(LazyCommand(name, sentence).real.help.split()).startswith(sentence)


def test_help_shows_every_command_and_imports_none_of_them() -> None:
    program = "import sys, rewardpool_cli; rewardpool_cli.main(); "
    seen = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert all(f" {name} " in seen for name in COMMANDS)
    heavy = "import sys; from typer.testing import CliRunner; from rewardpool_cli import app; "
    heavy += "CliRunner().invoke(app, ['--help']); print(*{'pydantic', 'aiohttp', 'rewardpool'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", heavy], text=True, timeout=60).strip() == ""


@pytest.mark.parametrize("arguments", [["--version"], ["-h"], ["up", "-h"], ["trace", "record", "-h"]])
def test_version_and_the_short_form_of_help_are_there(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 0

"""Every `rewardpool …` that a page shows is a command, with options, that there is."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from rewardpool_cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
CODE = re.compile(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)
CALL = re.compile(r"(?:^|[$(]|· )\s*(?:kubectl )?rewardpool ([a-z][^#·\n]*)", re.MULTILINE)


def calls(text: str) -> Iterator[list[str]]:
    """Words of each call of the command line in a page's code; without what a shell does with the answer."""
    for block, inline in CODE.findall(text):
        for call in CALL.findall(block or inline):
            yield shlex.split(re.split(r"[|>]", call)[0])


def unknown(words: list[str]) -> list[str]:
    """What of a call the command line does not have."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = words[0] if words else ""
        if name not in command.commands:
            return [name]
        command, words = command.commands[name], words[1:]
        command = getattr(command, "real", command)
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    return [word for word in words if word.startswith("-") and word.split("=")[0] not in options]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_call_that_a_page_shows_is_one_that_there_is(page: Path) -> None:
    assert {" ".join(words): missing for words in calls(page.read_text()) if (missing := unknown(words))} == {}


def test_calls_are_found_in_pages_and_what_they_lack_is_told() -> None:
    page = "```\nrewardpool up -f pool.yaml --detatch   # so\n```\n`rewardpool scales a 1`, `kubectl rewardpool status`"
    assert [(words[0], unknown(words)) for words in calls(page)] == [
        ("up", ["--detatch"]),
        ("scales", ["scales"]),
        ("status", []),
    ]

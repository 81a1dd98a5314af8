"""What the operator logs."""

import asyncio
import json
import logging
import sys

import pytest

from rewardpool_operator import logs
from rewardpool_operator.logs import JsonFormatter, TextFormatter, about


def record(message="%s is %s", *args, level=logging.WARNING, exc_info=None):
    return logging.LogRecord("rewardpool_operator.main", level, "main.py", 1, message, args, exc_info)


def as_json(*args, **fields):
    line = JsonFormatter().format(record(*args, **fields))
    assert "\n" not in line
    return json.loads(line)


def raised(message):
    try:
        int(message)
    except ValueError:
        return sys.exc_info()


def test_a_record_is_one_json_object_on_one_line():
    line = as_json("%s is\n%s", "this", "so")
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "rewardpool_operator.main", "message": "this is\nso"}


def test_the_pool_is_a_field():
    with about("rl/rm"):
        assert as_json("looked")["pool"] == "rl/rm"
    assert "pool" not in as_json("looked")


def test_figures_that_a_record_was_logged_with_are_fields():
    scaled = record("scaled")
    scaled.fields = {"scaling": {"from": 1, "to": 2}}
    assert json.loads(JsonFormatter().format(scaled))["scaling"] == {"from": 1, "to": 2}


async def test_tasks_of_different_pools_do_not_mix():
    async def logged(pool):
        with about(pool):
            await asyncio.sleep(0)
            return as_json("looked")["pool"]

    assert await asyncio.gather(logged("rl/a"), logged("rl/b")) == ["rl/a", "rl/b"]


def test_an_error_has_its_traceback():
    error = as_json("failed", exc_info=raised("no such thing"))["error"]
    assert error.startswith("Traceback")
    assert error.endswith("'no such thing'")


def test_a_line_stays_below_what_container_runtimes_cut():
    line = JsonFormatter().format(record("x" * 100_000, exc_info=raised("y" * 100_000)))
    assert len(line.encode()) < 16 * 1024
    assert json.loads(line)["error"].endswith("y")


def test_text_names_the_pool_before_the_message():
    with about("rl/rm"):
        assert TextFormatter().format(record("looked")).endswith(" WARNING rewardpool_operator.main: rl/rm: looked")


@pytest.fixture
def root_logger():
    """As it was, at the end."""
    root, kopf = logging.getLogger(), logging.getLogger("kopf")
    before = root.handlers[:], root.level, kopf.level
    root.handlers = []
    yield root
    root.handlers, root.level, kopf.level = before


def test_kopf_speaks_json_too(root_logger, capsys):
    logs.set_up("json")
    with about("rl/rm"):
        logging.getLogger("kopf.objects").error("the watch broke")
        logging.getLogger("kopf.objects").info("an event came")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["logger"], line["message"], line["pool"]) for line in lines] == [
        ("kopf.objects", "the watch broke", "rl/rm")
    ]

"""Whoever the user of a pod is, HOME can be written and the user has a name."""

import os
import pwd
from pathlib import Path

import pytest

from rewardpool_worker.engine_side.writable_home import make_home_writable


def test_a_home_that_can_be_written_stays(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    make_home_writable(environ)
    assert environ == {"HOME": str(tmp_path)}


@pytest.mark.parametrize("home", [None, "", "/proc/1", "/nowhere"])
def test_a_home_that_cannot_be_written_is_another_folder(home: str | None) -> None:
    environ = {} if home is None else {"HOME": home}
    make_home_writable(environ)
    (Path(environ["HOME"]) / ".cache").mkdir()


def test_a_user_without_a_name_gets_one_unless_somebody_gave_it_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    environ: dict[str, str] = {}
    make_home_writable(environ)
    assert environ["LOGNAME"] == f"uid-{os.getuid()}"
    environ = {"LOGNAME": "ada"}
    make_home_writable(environ)
    assert environ["LOGNAME"] == "ada"

"""How the tutorials' commands are taken from their pages, and compared with what they print."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import images
from cluster.contract import NotPossibleError
from tutorials import (
    IMAGE,
    MARK,
    ON_CLUSTER,
    PAGES,
    TutorialError,
    Typed,
    missing_line,
    new_home,
    of_release,
    registry_of,
    run_page,
    script,
    typed_commands,
    user_environment,
)

HERE = "```console\n$ cat > a.py <<'EOF'\n$ x\nEOF\n$ ls \\\n  -a\na.py\n\n```\ntext\n```console\n$ true\n```\n"


def test_a_page_is_typed_with_its_files_and_its_shown_lines() -> None:
    assert typed_commands(HERE) == [
        Typed("cat > a.py <<'EOF'\n$ x\nEOF", ()),
        Typed("ls \\\n  -a", ("a.py",)),
        Typed("true", ()),
    ]


def test_a_released_package_takes_the_place_of_the_checkout_and_of_nothing_else() -> None:
    typed = [Typed("pip install --quiet '.[router]' trl", ()), Typed("ls '.[router]'", ())]
    commands = [one.command for one in of_release(typed, "1.2.0")]
    assert commands == ["pip install --quiet 'rewardpool[router]==1.2.0' trl", "ls '.[router]'"]


class FakeCluster:
    """Counts what it is given; the registry of `registry` has the name of a registry, and nothing behind it."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.loaded: list[Path] = []

    def load_image(self, archive: Path) -> None:
        self.loaded.append(archive)

    @contextmanager
    def registry(self) -> Iterator[Any]:
        if self.address is None:
            raise NotPossibleError("not here")
        yield SimpleNamespace(address=self.address)


@pytest.mark.parametrize(
    ("address", "found", "loaded", "pushed"),
    [
        ("10.0.0.1:5000", "10.0.0.1:5000", [], [(IMAGE, "10.0.0.1:5000/rewards:1")]),
        (None, "localhost", [Path("rewards.tar")], []),
    ],
)
def test_the_nodes_have_the_image_from_a_registry_or_where_there_can_be_none_from_a_file(
    address: str | None, found: str, loaded: list[Path], pushed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(images, "push", lambda *names: sent.append(names))
    cluster = FakeCluster(address)
    with registry_of(cluster, Path("rewards.tar")) as there:  # type: ignore[arg-type]
        assert (there, cluster.loaded, sent) == (found, loaded, pushed)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(TutorialError, match="no line EOF"):
        typed_commands("```console\n$ cat > a.py <<'EOF'\nx\n```\n")


@pytest.mark.parametrize(
    ("shown", "missing"),
    [(["a 1", "c"], None), (["a …", "c"], None), (["c", "a 1"], "a 1"), (["a"], "a"), (["a 2"], "a 2")],
)
def test_shown_lines_must_be_printed_whole_and_in_their_order(shown: list[str], missing: str | None) -> None:
    assert missing_line(shown, "a 1\nb\nc\n") == missing


def test_the_shell_keeps_its_folder_and_ends_at_the_first_failure(tmp_path: Path) -> None:
    text = script([Typed("cd /", ()), Typed("pwd", ()), Typed("false", ()), Typed("echo never", ())])
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True)
    assert [line for line in done.stdout.split("\n") if line] == [f"{MARK}0", "/", f"{MARK}0", f"{MARK}1"]


def test_a_page_that_shows_what_is_not_printed_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one\ntwo\n```\n")
    with pytest.raises(TutorialError, match="does not print 'two'"):
        run_page(page, tmp_path / "run")


def test_an_environment_is_kept_for_a_page_that_installs_the_same_and_nothing_else_is(tmp_path: Path) -> None:
    home, made_by = tmp_path / "home", tmp_path / "made-by"

    def begin(*commands: str) -> set[str]:
        new_home(home, made_by=made_by, commands=[Typed(command, ()) for command in commands])
        found = {path.name for path in home.iterdir()}
        for left in (home / "environment", home / ".state"):
            left.mkdir(exist_ok=True)
        return found

    install = ("python3 -m venv ../environment", "pip install '.[router]'")
    assert begin(*install, "rewardpool up") == set()
    assert begin(*install, "python train.py") == {"environment"}
    assert begin(install[0], "pip install '.[router]' trl") == set()
    assert begin("kubectl get pods") == set()
    assert begin("kubectl get pods") == set()


@pytest.mark.parametrize("folder", ["../shop", ".rewardpool/venvs/dev"])
def test_a_page_that_fails_half_way_leaves_no_pool(tmp_path: Path, folder: str) -> None:
    page = tmp_path / "page.md"
    commands = (
        f"mkdir -p {folder}/bin",
        f"printf '#!/bin/sh\\necho $1 > {tmp_path}/done\\n' > {folder}/bin/rewardpool",
        f"chmod +x {folder}/bin/rewardpool",
        "false",
    )
    page.write_text("```console\n" + "".join(f"$ {command}\n" for command in commands) + "```\n")
    with pytest.raises(TutorialError, match="`false` failed"):
        run_page(page, tmp_path / "run")
    assert (tmp_path / "done").read_text() == "down\n"


def test_a_new_user_has_an_empty_home_and_no_pools(tmp_path: Path) -> None:
    inherited = {"HOME": "/root", "PATH": "/bin", "REWARDPOOL_STATE_DIR": "/state", "VIRTUAL_ENV": "/venv"}
    environment = user_environment(inherited, tmp_path)
    assert (environment["HOME"], environment["PATH"]) == (str(tmp_path), "/bin")
    assert not {"REWARDPOOL_STATE_DIR", "VIRTUAL_ENV"} & set(environment)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_tutorial_stops_each_pool_that_it_starts(page: Path) -> None:
    commands = [typed.command for typed in typed_commands(page.read_text())]
    starts = sum("rewardpool up" in command and "--detach" in command for command in commands)
    assert starts == sum("rewardpool down" in command for command in commands)


def test_the_pages_that_need_a_cluster_are_the_ones_that_type_kubectl() -> None:
    typing = {
        name
        for name, page in PAGES.items()
        if any("kubectl " in typed.command for typed in typed_commands(page.read_text()))
    }
    assert typing == set(ON_CLUSTER)

"""What `make first-minute` takes from README, and what it refuses."""

from pathlib import Path

import pytest

from first_minute import (
    ROOT,
    StepError,
    Typed,
    megabytes,
    refuse_dead_links,
    refuse_other_score,
    shown_extras,
    shown_files,
    typed_commands,
    user_environment,
)

EXAMPLE = ROOT / "examples" / "function"
SCORE = Typed(("rewardpool", "score", "a"), "0.984\n")


def test_the_commands_of_the_readme_are_those_that_are_typed() -> None:
    commands = typed_commands((ROOT / "README.md").read_text())
    assert [typed.words[:2] for typed in commands if typed.words[0] == "rewardpool"] == [
        ("rewardpool", "up"),
        ("rewardpool", "score"),
        ("rewardpool", "down"),
    ]
    assert shown_extras(commands) == "[router]"


@pytest.mark.parametrize("name", ["pool.yaml", "rewards.py"])
def test_the_files_are_those_that_the_readme_shows(name: str) -> None:
    shown = shown_files(typed_commands((ROOT / "README.md").read_text()))
    assert shown[name] == (EXAMPLE / name).read_text()


def test_a_readme_without_the_block_is_refused() -> None:
    with pytest.raises(StepError, match="no block of commands"):
        typed_commands("# RewardPool\n\n## A minute\n\nLater.\n")


def test_a_first_minute_that_installs_something_else_is_refused() -> None:
    with pytest.raises(StepError, match="no `pip install"):
        shown_extras([Typed(("pip", "install", "torch"), "")])


def test_another_score_than_the_one_shown_is_refused_with_both() -> None:
    with pytest.raises(StepError, match=r"printed '0\.0'; README\.md shows '0\.984'"):
        refuse_other_score(SCORE, "0.0\n")


@pytest.mark.parametrize(
    ("shown", "dead"),
    [
        ("[all pages](docs/index.md)", r"\]\(docs/index\.md\)"),
        ("```mermaid\nflowchart LR\n```", "```mermaid"),
        ("[below](#more)", r"\]\(#more\)"),
        (" \n", "it is empty"),
    ],
)
def test_a_description_that_an_index_cannot_show_is_refused_with_the_place(shown: str, dead: str) -> None:
    with pytest.raises(StepError, match=dead):
        refuse_dead_links(shown)


def test_a_description_with_absolute_links_can_be_shown() -> None:
    refuse_dead_links("[the format](https://example.org/), and text\n")


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 1_000_000)
    alone = megabytes(tmp_path)
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    assert megabytes(tmp_path) == alone


def test_a_new_user_has_no_other_pool_python_or_cluster(tmp_path: Path) -> None:
    inherited = {
        "PATH": "/bin",
        "HOME": "/home/me",
        "REWARDPOOL_SERVER_PYTHON": "/x",
        "PYTHONPATH": "/y",
        "KUBECONFIG": "/z",
    }
    assert user_environment(inherited, programs=tmp_path / "bin", state=tmp_path) == {
        "PATH": f"{tmp_path}/bin:/bin",
        "HOME": "/home/me",
        "REWARDPOOL_STATE_DIR": str(tmp_path),
        "KUBECONFIG": f"{tmp_path}/none",
    }

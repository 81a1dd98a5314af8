"""The lists of packages in `constraints/`, and what of others is pinned."""

import re
import tomllib
from pathlib import Path

import pytest

CONSTRAINTS = Path(__file__).parents[2] / "constraints"
PINNED = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
DIGEST = re.compile(r"--hash=sha256:[0-9a-f]{64}")
CUDA = re.compile(r"^((?:nvidia-|cuda-)[\w-]+|triton)==", re.MULTILINE)


def test_what_is_left_out_without_a_gpu_is_all_that_is_for_gpus_in_the_demos_environments() -> None:
    listed = set((CONSTRAINTS / "cuda.txt").read_text().splitlines()[1:])
    pinned = {name for file in ("server.txt", "trainer.txt") for name in CUDA.findall((CONSTRAINTS / file).read_text())}
    assert listed == pinned


@pytest.mark.parametrize("name", ["image.txt", "image-build.txt"])
def test_all_that_an_image_installs_has_a_version_of_ours_and_a_digest(name: str) -> None:
    text = (CONSTRAINTS / name).read_text()
    entries = re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
    elsewhere = dict(
        pin for file in ("server.txt", "dev.txt") for pin in PINNED.findall((CONSTRAINTS / file).read_text())
    )
    for entry in entries:
        (package, version), *digests = PINNED.findall(entry) + DIGEST.findall(entry)
        assert digests, package
        assert elsewhere.get(package, version) == version
    assert entries
    assert "://" not in text


def test_the_image_has_what_the_project_needs_to_run_there() -> None:
    project = tomllib.loads((CONSTRAINTS.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["operator"], *extras["router"], *extras["download"]]
    names = {re.split(r"[\[<>=;]", one)[0] for one in wanted}
    assert names <= dict(PINNED.findall((CONSTRAINTS / "image.txt").read_text())).keys()


def test_actions_are_named_by_their_commits() -> None:
    for workflow in (CONSTRAINTS.parent / ".github" / "workflows").glob("*.yml"):
        for used in re.findall(r"uses: (\S+)", workflow.read_text()):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", used), f"{used} in {workflow.name}"

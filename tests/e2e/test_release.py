"""What `make release` refuses, and what it makes the same for the same commit."""

import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from cluster.folders import REPOSITORY
from release.checksums import NAME, checksums
from release.reproducible import date_archive, dated_bill_of_materials
from release.versions import STATED_IN, disagreement, stated_versions

FILES = {
    "pyproject.toml": '[project]\nversion = "1.2.0"\n',
    "charts/rewardpool/Chart.yaml": "version: 1.2.0\nappVersion: 1.2.0\n",
    "CHANGELOG.md": "# Changelog\n\n## [1.2.0] - 2026-12-01\n\n## 1.1.0\n",
}


def test_this_tree_states_one_version_everywhere() -> None:
    stated = stated_versions(lambda path: (REPOSITORY / path).read_text())
    assert set(stated) == set(STATED_IN)
    assert disagreement(stated) is None


def test_one_version_everywhere_can_be_released() -> None:
    stated = stated_versions(FILES.__getitem__, tag="v1.2.0")
    assert set(stated.values()) == {"1.2.0"}
    assert disagreement(stated) is None


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("pyproject.toml", '[project]\nversion = "1.3.0"\n', "1.3.0      pyproject.toml, project.version"),
        ("charts/rewardpool/Chart.yaml", "version: 2\nappVersion: 1.2.0\n", "2          .*, version"),
        ("charts/rewardpool/Chart.yaml", "version: 1.2.0\nappVersion: 1.1\n", "1.1        .*, appVersion"),
        ("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n## 1.2.0\n", "Unreleased CHANGELOG.md, the first heading"),
        ("CHANGELOG.md", "# Changelog\n", r"\(none\)     CHANGELOG.md"),
    ],
)
def test_another_version_is_refused_with_its_place(path: str, text: str, said: str) -> None:
    stated = stated_versions({**FILES, path: text}.__getitem__)
    assert (words := disagreement(stated)) is not None
    assert re.search(said, words), words


def test_a_tag_of_another_version_is_refused() -> None:
    words = disagreement(stated_versions(FILES.__getitem__, tag="v1.2.1"))
    assert words is not None
    assert "1.2.1      the tag v1.2.1" in words


def an_archive(path: Path, *, time: int) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("chart/values.yaml")
        member.size, member.mtime = 2, time
        archive.addfile(member, io.BytesIO(b"{}"))
    return path


def test_an_archive_made_at_another_time_becomes_the_same(tmp_path: Path) -> None:
    made = [an_archive(tmp_path / f"{time}.tgz", time=time) for time in (1, 2)]
    for path in made:
        date_archive(path, 1_700_000_000)
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as archive:
        assert [(member.name, member.mtime) for member in archive] == [("chart/values.yaml", 1_700_000_000)]
        content = archive.extractfile("chart/values.yaml")
        assert content is not None
        assert content.read() == b"{}"


def test_a_bill_of_materials_has_the_commits_time_and_no_number_of_its_own() -> None:
    document = {"serialNumber": "urn:uuid:1", "metadata": {"timestamp": "now", "component": "x"}, "components": []}
    assert json.loads(dated_bill_of_materials(document, 1_700_000_000)) == {
        "metadata": {"timestamp": "2023-11-14T22:13:20Z", "component": "x"},
        "components": [],
    }


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "chart").mkdir()
    (tmp_path / "chart" / "a.tgz").write_bytes(b"a")
    (tmp_path / NAME).write_text("old\n")
    text = checksums(tmp_path)
    assert text == f"{hashlib.sha256(b'a').hexdigest()}  chart/a.tgz\n"
    (tmp_path / NAME).write_text(text)
    subprocess.run(["sha256sum", "--check", "--strict", NAME], cwd=tmp_path, check=True)

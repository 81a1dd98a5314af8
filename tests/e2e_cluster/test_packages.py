"""What is missing on the machine is installed, or named."""

import re
from pathlib import Path

import pytest

from cluster import packages
from cluster.processes import ClusterError


def test_only_what_is_missing_is_named() -> None:
    assert packages.missing({"sh": "dash", "no-such-program": "nothing more"}) == ["more", "nothing"]


def test_without_root_the_packages_are_named_and_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    with pytest.raises(
        ClusterError, match=r"missing on this machine: debootstrap .* type: sudo apt-get install debootstrap"
    ):
        packages.require({"no-such-program": "debootstrap"}, say=lambda line: None)


def test_plugins_are_found_outside_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ptp").touch()
    monkeypatch.setattr(packages, "CNI_FOLDERS", (tmp_path / "none", tmp_path))

    assert packages.cni_folder() == tmp_path


def test_a_library_and_a_python_module_are_looked_for_as_well() -> None:
    present = {"libc.so.6": "libc6", "import ensurepip": "python3-venv"}
    absent = {"libnone.so.1": "libnone1", "import no_such_module": "python3-none"}

    assert packages.missing({**present, **absent}) == ["libnone1", "python3-none"]


def test_the_targets_name_groups_of_packages_that_exist() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    named = {group for groups in re.findall(r"\$\(PACKAGES\) (.+)", makefile) for group in groups.split()}

    assert named == {"environment", "engine", "tests"} < set(packages.GROUPS)

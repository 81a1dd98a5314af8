"""What is missing on the machine is installed, or named."""

from pathlib import Path

import pytest

from cluster import packages
from cluster.processes import ClusterError


def test_only_what_is_missing_is_named() -> None:
    assert packages.missing({"sh": "dash", "no-such-program": "nothing more"}) == ["more", "nothing"]


def test_without_root_the_packages_are_named_and_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    with pytest.raises(ClusterError, match=r"missing on this machine: debootstrap .* run as root"):
        packages.require({"no-such-program": "debootstrap"}, say=lambda line: None)


def test_plugins_are_found_outside_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ptp").touch()
    monkeypatch.setattr(packages, "CNI_FOLDERS", (tmp_path / "none", tmp_path))

    assert packages.cni_folder() == tmp_path

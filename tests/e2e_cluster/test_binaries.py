"""Which programs are built, how, and where a ready one is taken instead."""

import re
from pathlib import Path

import pytest

from cluster import binaries
from cluster.binaries import RECIPES, BuildError

ROOT = Path(__file__).resolve().parents[2]


def test_programs_of_one_module_are_built_together_and_once() -> None:
    wanted = [RECIPES[name] for name in ("kubectl", "etcd", "kubelet", "kubectl")]

    assert [[recipe.name for recipe in batch] for batch in binaries.batches(wanted)] == [
        ["kubectl", "kubelet"],
        ["etcd"],
    ]


def test_the_server_is_told_the_version_that_go_mod_requires() -> None:
    go_mod = "module x\n\nrequire (\n\tk8s.io/kubernetes v1.34.4\n)\n"

    flags = binaries.linker_flags(RECIPES["kube-apiserver"], go_mod)

    assert "-X k8s.io/component-base/version.gitVersion=v1.34.4" in flags
    assert "-X k8s.io/component-base/version.gitMinor=34" in flags


def test_a_go_mod_without_the_module_is_named_in_the_error() -> None:
    with pytest.raises(BuildError, match=r"gomod/helm/go\.mod does not require helm\.sh/helm/v3"):
        binaries.linker_flags(RECIPES["helm"], "module x\n")


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_finds_its_version_in_the_tracked_go_mod(name: str) -> None:
    recipe = RECIPES[name]

    assert binaries.linker_flags(recipe, (binaries.GOMOD / recipe.module / "go.mod").read_text())


def test_a_changed_checksum_changes_the_cache_folder_of_its_module(tmp_path: Path) -> None:
    checksums = tmp_path / "go.sum"
    checksums.write_text("a")
    before = binaries.fingerprint(tmp_path)

    checksums.write_text("b")

    assert binaries.fingerprint(tmp_path) != before


def test_a_control_plane_program_in_kubebuilder_assets_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    assert binaries.ensure("kubectl") == {"kubectl": program}


def test_without_go_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(binaries, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    with pytest.raises(BuildError, match=r"install Go .* or set KUBEBUILDER_ASSETS"):
        binaries.ensure("etcd")


def test_an_unknown_program_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BuildError, match="no recipe for 'kubeadm'; known: coredns, crane, etcd"):
        binaries.ensure("kubeadm")


def test_what_tests_and_benches_start_is_built_by_the_target_before_them() -> None:
    sources = [path.read_text() for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py")]
    started = {
        name
        for text in sources
        for call in re.findall(r"= binaries\.ensure\((.*?)\)", text)
        for name in re.findall(r'"(.+?)"', call)
    }

    assert started
    assert started <= set(binaries.TESTS)

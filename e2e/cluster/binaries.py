"""The programs of Kubernetes, built from Go modules.

Nothing is downloaded ready-made: each program comes from a small module under `gomod/` whose go.mod names the version
and whose go.sum pins every source file; kstatus, a library, has a main.go of ours there. Results lie in
`.rewardpool/cache/bin/<module>-<hash of those files>/`, so a changed version is built anew and an unchanged one never
twice. Where KUBEBUILDER_ASSETS (the convention of envtest)
names a folder that holds a control-plane program, that one is taken instead.

    python -m cluster.binaries kube-apiserver etcd     # builds what is missing, prints the paths
    python -m cluster.binaries                         # all that tests start, so that none builds within its time limit
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.folders import CACHE
from cluster.locks import locked
from cluster.progress import Say, timed_lines

GOMOD = Path(__file__).parent / "gomod"

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("kubelet", "kube-proxy", "coredns")
GVISOR = ("runsc", "shim")
TESTS = (*CONTROL_PLANE, "etcdutl", "helm", "kstatus", "kubeconform", "kwok")

BUILD_SECONDS = 1800.0
"""No build may take longer; the slowest, kube-apiserver and its kin, took 220 s on two cores."""


class BuildError(RuntimeError):
    """A program could not be built; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to build one program: the folder under `gomod/`, the Go package, and the linker's `-X` settings.

    `{version}` in a setting becomes the version of the module `versioned_by`, as go.mod has it.
    """

    name: str
    module: str
    package: str
    versioned_by: str
    settings: tuple[str, ...] = ()


_KUBERNETES_SETTINGS = (
    # Without these the server calls itself v0.0.0 and clients that look at the minor version misbehave.
    "k8s.io/component-base/version.gitVersion={version}",
    "k8s.io/component-base/version.gitMajor={major}",
    "k8s.io/component-base/version.gitMinor={minor}",
    "k8s.io/component-base/version.gitTreeState=clean",
)


def _kubernetes(name: str) -> Recipe:
    return Recipe(
        name=name,
        module="kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        versioned_by="k8s.io/kubernetes",
        settings=_KUBERNETES_SETTINGS,
    )


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="etcd", module="etcd", package="go.etcd.io/etcd/server/v3", versioned_by="go.etcd.io/etcd/server/v3"
        ),
        Recipe(
            name="etcdutl",
            module="etcdutl",
            package="go.etcd.io/etcd/etcdutl/v3",
            versioned_by="go.etcd.io/etcd/etcdutl/v3",
        ),
        _kubernetes("kube-apiserver"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kubectl"),
        _kubernetes("kubelet"),
        _kubernetes("kube-proxy"),
        Recipe(
            name="coredns",
            module="coredns",
            package="github.com/coredns/coredns",
            versioned_by="github.com/coredns/coredns",
        ),
        Recipe(
            name="helm",
            module="helm",
            package="helm.sh/helm/v3/cmd/helm",
            versioned_by="helm.sh/helm/v3",
            settings=("helm.sh/helm/v3/internal/version.version={version}",),
        ),
        Recipe(
            name="kubeconform",
            module="kubeconform",
            package="github.com/yannh/kubeconform/cmd/kubeconform",
            versioned_by="github.com/yannh/kubeconform",
            settings=("main.version={version}",),
        ),
        # What `make release` makes the chart's OCI artifact and the lists of what is in everything with.
        Recipe(
            name="crane",
            module="crane",
            package="github.com/google/go-containerregistry/cmd/crane",
            versioned_by="github.com/google/go-containerregistry",
            settings=("github.com/google/go-containerregistry/cmd/crane/cmd.Version={version}",),
        ),
        Recipe(
            name="syft",
            module="syft",
            package="github.com/anchore/syft/cmd/syft",
            versioned_by="github.com/anchore/syft",
            settings=("main.version={version}",),
        ),
        *(
            Recipe(
                name=name,
                module="gvisor",
                package=f"gvisor.dev/gvisor/{name}",
                versioned_by="gvisor.dev/gvisor",
                settings=("gvisor.dev/gvisor/runsc/version.version={version}",),
            )
            for name in GVISOR
        ),
        Recipe(name="kstatus", module="kstatus", package=".", versioned_by="sigs.k8s.io/cli-utils"),
        Recipe(name="kind", module="kind", package="sigs.k8s.io/kind", versioned_by="sigs.k8s.io/kind"),
        Recipe(
            name="kwok",
            module="kwok",
            package="sigs.k8s.io/kwok/cmd/kwok",
            versioned_by="sigs.k8s.io/kwok",
            settings=("sigs.k8s.io/kwok/pkg/consts.Version={version}",),
        ),
        Recipe(
            name="kueue",
            module="kueue",
            package="sigs.k8s.io/kueue/cmd/kueue",
            versioned_by="sigs.k8s.io/kueue",
            settings=("sigs.k8s.io/kueue/pkg/version.GitVersion={version}",),
        ),
    )
}


def ensure(*names: str, say: Say | None = None) -> dict[str, Path]:
    """Paths of the named programs, building those that are missing.

    The first build of the control plane takes minutes; `say` gets a line about every ten seconds.
    Raises `BuildError` for an unknown name, a missing Go, or a failed build.
    """
    say = say or timed_lines()
    recipes = [_recipe(name) for name in names]
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found = {recipe.name: path for recipe in recipes if (path := _from_assets(recipe.name, assets))}
    wanted = {recipe: _built(recipe) for recipe in recipes if recipe.name not in found}
    if not all(path.exists() for path in wanted.values()):
        go = _go()
        with locked(CACHE / "bin" / "lock", say=say, deadline_seconds=BUILD_SECONDS):
            for batch in batches(recipe for recipe, path in wanted.items() if not path.exists()):
                _build(go, batch, folder=_built(batch[0]).parent, say=say)
    return found | {recipe.name: path for recipe, path in wanted.items()}


def fingerprint(module: Path) -> str:
    """A short hash of what a module is built from: two checkouts with the same one share its binaries."""
    digest = hashlib.sha256()
    for file in sorted((*module.glob("go.*"), *module.glob("main.go"))):
        digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _built(recipe: Recipe) -> Path:
    return CACHE / "bin" / f"{recipe.module}-{fingerprint(GOMOD / recipe.module)}" / recipe.name


def batches(recipes: Iterable[Recipe]) -> list[list[Recipe]]:
    """The recipes grouped by module, in their order: one `go build` links the programs of a module side by side."""
    groups: dict[str, list[Recipe]] = {}
    for recipe in recipes:
        group = groups.setdefault(recipe.module, [])
        if recipe not in group:
            group.append(recipe)
    return list(groups.values())


def linker_flags(recipe: Recipe, go_mod: str) -> str:
    """The value of `-ldflags`: no symbol tables, and the version that `go_mod` (the file's text) requires."""
    match = re.search(
        rf"^\s*(?:require\s+)?{re.escape(recipe.versioned_by)}\s+(v(\d+)\.(\d+)\S*)", go_mod, re.MULTILINE
    )
    if match is None:
        raise BuildError(f"gomod/{recipe.module}/go.mod does not require {recipe.versioned_by}")
    version, major, minor = match.groups()
    settings = (setting.format(version=version, major=major, minor=minor) for setting in recipe.settings)
    return " ".join(["-s", "-w", *(f"-X {setting}" for setting in settings)])


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise BuildError(f"no recipe for {name!r}; known: {', '.join(sorted(RECIPES))}")
    return RECIPES[name]


def _from_assets(name: str, assets: str | None) -> Path | None:
    if not assets or name not in CONTROL_PLANE:
        return None
    path = Path(assets) / name
    return path if os.access(path, os.X_OK) else None


def _go() -> str:
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            "Go is not on the PATH, and Kubernetes is built with it: install Go 1.24 or newer, or set "
            f"KUBEBUILDER_ASSETS to a folder with {', '.join(CONTROL_PLANE)}"
        )
    return go


def _build(go: str, batch: Sequence[Recipe], *, folder: Path, say: Say) -> None:
    module = GOMOD / batch[0].module
    names = ", ".join(recipe.name for recipe in batch)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as unfinished:
        # With one package, -o names the file: go would call etcd's "server" after its package's last element.
        output = Path(unfinished) / batch[0].name if len(batch) == 1 else Path(unfinished)
        flags = linker_flags(batch[0], (module / "go.mod").read_text())
        command = [go, "build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", flags]
        command += ["-o", f"{output}{os.sep if output.is_dir() else ''}", *(recipe.package for recipe in batch)]
        log = folder / f"build-{batch[0].module}.log"
        say(f"building {names} (once; the sources come through the Go module proxy)")
        _run_build(command, cwd=module, log=log, names=names, say=say)
        for recipe in batch:
            # Renaming is atomic: nobody ever sees, or starts, half a program.
            (Path(unfinished) / recipe.name).rename(folder / recipe.name)


def _run_build(command: Sequence[str], *, cwd: Path, log: Path, names: str, say: Say) -> None:
    began = time.monotonic()
    with log.open("wb") as output:
        environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": ""}
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            while True:
                try:
                    status = process.wait(timeout=10)
                    break
                except subprocess.TimeoutExpired:
                    seconds = time.monotonic() - began
                    lines = log.read_bytes().count(b"\n")
                    say(f"building {names}: {seconds:.0f} s, {lines} packages fetched or compiled")
                    if seconds > BUILD_SECONDS:
                        raise BuildError(
                            f"building {names} took longer than {BUILD_SECONDS:.0f} s; see {log}"
                        ) from None
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=30)
    if status != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise BuildError(f"go build of {names} failed with status {status}:\n{tail}")
    say(f"built {names} in {time.monotonic() - began:.0f} s")


def main() -> None:
    """Build the named programs, or all that the tests start, and print where they are."""
    parser = argparse.ArgumentParser(prog="python -m cluster.binaries", description=main.__doc__)
    parser.add_argument("names", nargs="*", default=[*TESTS], help=", ".join(RECIPES))
    try:
        for name, path in ensure(*parser.parse_args().names).items():
            print(f"{name}\t{path}")
    except (BuildError, TimeoutError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

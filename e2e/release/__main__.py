"""`make release`; see the package."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cluster import binaries, images, registry
from cluster.folders import REPOSITORY
from cluster.processes import output_of
from cluster.progress import Say, timed_lines
from exit_status import exit_status
from first_minute import TWINE, UV, description, refuse_dead_links
from release import checksums, reproducible, versions
from scene import StoryError

RESULT: Final = REPOSITORY / ".rewardpool" / "release"
IMAGE: Final = "localhost/rewardpool"
STEP_SECONDS: Final = 900.0


@dataclass(frozen=True)
class Release:
    """What is built, of which version, and the time that all of it bears.

    Attributes:
        epoch: of the commit, in seconds since 1970; `SOURCE_DATE_EPOCH` where that is set.
    """

    version: str
    epoch: int
    folder: Path
    say: Say
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str | Path) -> str:
        """The standard output of a program.

        Raises:
            ClusterError: It failed; the message has its output.
        """
        settings = {"SOURCE_DATE_EPOCH": str(self.epoch), **self.environment}
        return output_of(*command, deadline_seconds=STEP_SECONDS, environment=settings)

    def package(self) -> Path:
        """The source archive and the wheel, built from it; the wheel's path."""
        self.say("the package: source archive and wheel")
        folder = self.folder / "package"
        self.run(UV, "build", "--quiet", "--no-create-gitignore", "--out-dir", folder, REPOSITORY)
        [wheel], [archive] = folder.glob("*.whl"), folder.glob("*.tar.gz")
        refuse_dead_links(description(wheel))
        self.run(UV, "tool", "run", "--quiet", TWINE, "check", "--strict", wheel, archive)
        return wheel

    def installed(self, wheel: Path, folder: Path) -> Path:
        """An environment with the wheel and what it depends on, whose `rewardpool --version` is the release's."""
        self.say("an environment with the wheel alone")
        self.run(UV, "venv", "--quiet", "--python", sys.executable, folder)
        constraints, python = REPOSITORY / "constraints" / "dev.txt", folder / "bin" / "python"
        self.run(UV, "pip", "install", "--quiet", "--constraint", constraints, "--python", python, wheel)
        said = self.run(folder / "bin" / "rewardpool", "--version").strip()
        if said != self.version:
            raise StoryError(f"`rewardpool --version` of the built wheel says {said}; pyproject.toml {self.version}")
        return folder

    def image(self) -> Path:
        """The image as an OCI archive, on a bare Debian."""
        self.say("the image (minutes)")
        labels = {"title": "rewardpool", "version": self.version, "licenses": "Apache-2.0", "revision": commit()}
        return images.build(
            REPOSITORY / "workers" / "Containerfile",
            context=REPOSITORY,
            tag=f"{IMAGE}:{self.version}",
            archive=self.folder / "image" / f"rewardpool-{self.version}.oci.tar",
            arguments={"BASE": images.base_image(say=self.say), "SOURCE_DATE_EPOCH": str(self.epoch)},
            labels={f"org.opencontainers.image.{name}": value for name, value in labels.items()},
            timestamp=self.epoch,
            transport="oci-archive",
            say=self.say,
        )

    def chart(self, scratch: Path) -> None:
        """The chart as `helm package` makes it, and the OCI layout of what `helm push` makes of that in a registry.

        The registry is a real one, on loopback, and gone afterwards.
        """
        self.say("the chart, and its OCI layout")
        helm = binaries.ensure("helm", say=self.say)["helm"]
        folder = self.folder / "chart"
        self.run(helm, "package", REPOSITORY / "charts" / "rewardpool", "--destination", folder)
        [archive] = folder.glob("*.tgz")
        reproducible.date_archive(archive, self.epoch)
        os.utime(archive, (self.epoch, self.epoch))  # helm push writes it into the manifest
        with registry.serve(scratch / "registry", say=self.say) as served:
            charts = f"{served.address}/charts"
            self.run(helm, "push", archive, f"oci://{charts}", "--plain-http")
            name = f"{charts}/rewardpool:{self.version}"
            self.run(served.crane, "pull", "--insecure", "--format=oci", name, folder / "oci")
            self.run(helm, "pull", f"oci://{charts}/rewardpool", "--plain-http", "--destination", scratch)
        if (scratch / archive.name).read_bytes() != archive.read_bytes():
            raise StoryError(f"{archive.name} comes out of the registry with other bytes than went into it")

    def bill_of_materials(self, source: str, path: Path) -> None:
        """What is in `source` (as syft names it), as CycloneDX.

        Raises:
            StoryError: RewardPool itself is not among it.
        """
        self.say(f"what is in it: {path}")
        syft = binaries.ensure("syft", say=self.say)["syft"]
        named = ["--source-name", "rewardpool", "--source-version", self.version]
        found: dict[str, Any] = json.loads(self.run(syft, "scan", source, *named, "--quiet", "--output=cyclonedx-json"))
        parts = {(part["name"], part.get("version")) for part in found["components"]}
        if ("rewardpool", self.version) not in parts:
            raise StoryError(f"syft does not find rewardpool {self.version} in {source}")
        self.say(f"{len(parts)} parts")
        (self.folder / path).write_text(reproducible.dated_bill_of_materials(found, self.epoch))


def commit() -> str:
    """The commit that is built, with `-dirty` behind it where files differ from it."""
    described = ["git", "-C", str(REPOSITORY), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    return output_of(*described).strip()


def commit_time() -> int:
    """`SOURCE_DATE_EPOCH`, or when the commit was made, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or output_of("git", "-C", str(REPOSITORY), "log", "-1", "--format=%ct").strip())


def build(tag: str | None, *, with_image: bool, say: Say) -> int:
    """Build all of it, and print what there is.

    Raises:
        StoryError: Files state different versions, or what was built is not what it should be.
    """
    stated = versions.stated_versions(lambda path: (REPOSITORY / path).read_text(), tag=tag)
    if differing := versions.disagreement(stated):
        raise StoryError(differing)
    if tag and commit().endswith("-dirty"):
        raise StoryError(f"files differ from the commit that is to be {tag}: commit or restore them")
    shutil.rmtree(RESULT, ignore_errors=True)
    RESULT.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="rewardpool-release-") as scratch:
        home = Path(scratch) / "helm"
        variables = {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        version = next(iter(stated.values()))
        environment = {**variables, "SYFT_CHECK_FOR_APP_UPDATE": "false", "SYFT_FILE_METADATA_SELECTION": "none"}
        release = Release(version, commit_time(), RESULT, say, environment)
        wheel = release.package()
        installed = release.installed(wheel, Path(scratch) / "installed")
        release.chart(Path(scratch))
        release.bill_of_materials(f"dir:{installed}", Path("package", f"rewardpool-{version}.cdx.json"))
        if with_image:
            archive = release.image()
            release.bill_of_materials(f"oci-archive:{archive}", Path("image", f"rewardpool-{version}.cdx.json"))
    (RESULT / checksums.NAME).write_text(checksums.checksums(RESULT))
    for path in (RESULT / checksums.NAME, *sorted(RESULT.glob("*/*"))):
        size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")))
        print(f"{size / 1e6:9.2f} MB  {path.relative_to(REPOSITORY)}{'/' if path.is_dir() else ''}")
    return 0


def main() -> int:
    """Read the arguments and build."""
    parser = argparse.ArgumentParser(prog="python -m release", description="Build a release; nothing is published.")
    parser.add_argument("--tag", help="the commit's tag, such as v0.2.0, which has to agree with the versions")
    parser.add_argument("--no-image", dest="image", action="store_false", help="leave out the image (needs root, apt)")
    arguments = parser.parse_args()
    return build(arguments.tag or None, with_image=arguments.image, say=timed_lines())


if __name__ == "__main__":
    sys.exit(exit_status(main))

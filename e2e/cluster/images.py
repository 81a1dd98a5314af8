"""Container images without Docker: buildah builds them, and archives carry them.

`base_image()` is a Debian with Python and git made by debootstrap, standing in for `python:3.x` where no container
registry is reachable; it is made once and kept in the cache. `build()` builds a container file that starts with
`ARG BASE` and `FROM ${BASE}` on it. pip inside a build sees the host's pip settings and certificates, lent for the
build and not part of the image.
"""

import configparser
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.folders import CACHE
from cluster.locks import locked
from cluster.packages import BASE_IMAGE_PACKAGES, NODE_PACKAGES, require
from cluster.processes import ClusterError, output_of
from cluster.progress import Say

BASE_TAG = "localhost/rewardpool-base:bookworm-git"
PAUSE_TAG = "localhost/rewardpool-pause:1"

_SUITE = "bookworm"
_INCLUDED = ("python3", "python3-venv", "python3-pip", "ca-certificates", "git", "libnuma1")
"""git: functions come from repositories. libnuma1: vLLM for CPU, mounted into pods from the host, links to it."""
_BUILD_SECONDS = 900.0
_PAUSE_SOURCE = Path(__file__).with_name("pause.c")
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

_LENT_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
"""What of the host's pip settings means the same inside a build; paths, such as find-links, do not."""


def pause_program() -> Path:
    """The compiled `pause.c`, a static program."""
    digest = hashlib.sha256(_PAUSE_SOURCE.read_bytes()).hexdigest()[:16]
    program = CACHE / "pause" / digest / "pause"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_name(f"pause.{os.getpid()}")
        output_of("gcc", "-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror", "-o", unfinished, _PAUSE_SOURCE)
        unfinished.replace(program)
    return program


def pause_archive(*, say: Say) -> Path:
    """An image archive with `PAUSE_TAG`, what the container runtime gives each pod as its sandbox."""
    program = pause_program()
    archive = program.with_name("pause.tar")
    if not archive.exists():
        container_file = program.with_name("Containerfile")
        container_file.write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
        build(container_file, context=program.parent, tag=PAUSE_TAG, archive=archive, say=say)
    return archive


def base_image(*, say: Say) -> str:
    """The tag of the base image in the build storage, made with debootstrap where it is not there yet (a minute)."""
    require({**NODE_PACKAGES, **BASE_IMAGE_PACKAGES}, say=say)
    with locked(CACHE / "images" / "lock", say=say, deadline_seconds=_BUILD_SECONDS):
        if _exists(BASE_TAG):
            return BASE_TAG
        with tempfile.TemporaryDirectory(dir=CACHE / "images", prefix="base-") as folder:
            root = Path(folder) / "root"
            say(f"making the base image: Debian {_SUITE} with Python and git (once, about a minute)")
            log = CACHE / "images" / "debootstrap.log"
            command = ["debootstrap", "--variant=minbase", f"--include={','.join(_INCLUDED)}", _SUITE, str(root)]
            _logged(command, log=log, what="debootstrap", say=say)
            shutil.rmtree(root / "var/cache/apt")
            (root / "usr/bin/python").symlink_to("python3")
            # Debian keeps pip out of its own Python; in an image that is nobody's system, pip is what installs.
            for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
                marker.unlink()
            container_file = Path(folder) / "Containerfile"
            container_file.write_text('FROM scratch\nCOPY root /\nENV LANG=C.UTF-8\nCMD ["python3"]\n')
            _build(container_file, context=Path(folder), tag=BASE_TAG, arguments={}, say=say)
    return BASE_TAG


def build(
    container_file: Path,
    *,
    context: Path,
    tag: str,
    archive: Path,
    arguments: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    timestamp: int | None = None,
    transport: str = "docker-archive",
    say: Say,
) -> Path:
    """Build `container_file` and write it to `archive` under the name `tag`.

    Args:
        container_file: the file; a relative `COPY` in it starts at `context`.
        context: folder of the build context.
        tag: full name such as `localhost/rewardpool-operator:e2e`; the cluster knows the image by it.
        archive: replaced when it exists.
        arguments: build arguments; `{"BASE": base_image(say=say)}` puts the file on the base image.
        labels: of the image, such as its version.
        timestamp: when the image and its files say that they were made, in seconds since 1970; now by default.
        transport: the archive's format, `docker-archive` or `oci-archive`.
        say: told what is being built.

    Raises `ClusterError` with the end of the build's output.
    """
    require(NODE_PACKAGES, say=say)
    further = [part for name, value in (labels or {}).items() for part in ("--label", f"{name}={value}")]
    if timestamp is not None:
        further += ["--timestamp", str(timestamp)]
    _build(container_file, context=context, tag=tag, arguments=arguments or {}, further=further, say=say)
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_name(f"{archive.name}.{os.getpid()}")
    output_of(*_buildah("push"), "--quiet", tag, f"{transport}:{unfinished}:{tag}", deadline_seconds=_BUILD_SECONDS)
    unfinished.replace(archive)
    return archive


def push(tag: str, name: str) -> None:
    """Push an image that was built to a registry without TLS; `name` begins with its address."""
    output_of(
        *_buildah("push"), "--quiet", "--tls-verify=false", tag, f"docker://{name}", deadline_seconds=_BUILD_SECONDS
    )


def build_once(
    container_file: Path, *, context: Path, tag: str, archive: Path, arguments: Mapping[str, str], say: Say
) -> Path:
    """Like `build`, but for an archive that was made of the same files, on the same base: it is taken as it is."""
    require(NODE_PACKAGES, say=say)
    note = archive.with_name(f"{archive.name}.made-of")
    base = output_of(*_buildah("inspect"), "--type", "image", "--format", "{{.FromImageID}}", arguments["BASE"])
    further = [base, *(f"{name}={value}" for name, value in sorted(arguments.items()))]
    made_of = digest_of(container_file, context, further=further)
    if archive.exists() and note.exists() and note.read_text() == made_of and _exists(tag):
        say(f"the image {tag} is there, made of the same files")
        return archive
    note.unlink(missing_ok=True)
    build(container_file, context=context, tag=tag, archive=archive, arguments=arguments, say=say)
    note.write_text(made_of)
    return archive


def digest_of(container_file: Path, context: Path, *, further: Sequence[str] = ()) -> str:
    """A digest of a container file, of all files that it copies from its context, and of `further` texts."""
    text = container_file.read_text()
    digest = hashlib.sha256("\0".join([text, *further]).encode())
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ")]
    for source in (context / name for names in copied for name in names):
        files = [source] if source.is_file() else [file for file in source.rglob("*") if file.is_file()]
        for file in sorted(file for file in files if "__pycache__" not in file.parts):
            digest.update(f"\0{file.relative_to(context)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def lent_pip_settings(listing: str) -> str:
    """The text of a pip.conf with those settings of `pip config list`'s output that hold inside a build too.

    The environment wins over the files, as it does in pip.
    """
    section: dict[str, str] = {}
    for line in sorted(listing.splitlines(), key=lambda line: line.startswith(":env:.")):
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2]
        if key in _LENT_PIP_SETTINGS and name.startswith(("global.", "install.", ":env:.")):
            section[key] = value.strip("'\"").replace("\\n", "\n")
    text = io.StringIO()
    config = configparser.RawConfigParser()
    config["global"] = section | {"cert": _CERTIFICATES}
    config.write(text)
    return text.getvalue()


def _build(
    container_file: Path,
    *,
    context: Path,
    tag: str,
    arguments: Mapping[str, str],
    further: Sequence[str] = (),
    say: Say,
) -> None:
    (CACHE / "images").mkdir(parents=True, exist_ok=True)
    command = [*_buildah("build"), "--isolation", "chroot", "--network", "host", "--pull=never", "--tag", tag, *further]
    command += [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    with tempfile.TemporaryDirectory(prefix="rewardpool-build-") as lent:
        command += [*_lend(Path(lent)), "--file", str(container_file), str(context)]
        log = CACHE / "images" / f"{tag.rpartition('/')[2].replace(':', '-')}.log"
        _logged(command, log=log, what=f"building the image {tag}", say=say)


def _lend(folder: Path) -> list[str]:
    """Flags that show a build the host's pip settings and certificates, without putting them into the image."""
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60, check=False
    )
    # A Python without pip has no settings of its own, but the environment's count all the same.
    listing = pip.stdout if pip.returncode == 0 else _pip_environment(os.environ)
    settings = folder / "pip.conf"
    settings.write_text(lent_pip_settings(listing))
    flags = ["--volume", f"{settings}:/etc/pip.conf:ro"]
    certificates = Path(os.environ.get("SSL_CERT_FILE", _CERTIFICATES))
    if certificates.is_file():
        flags += ["--volume", f"{certificates.resolve()}:{_CERTIFICATES}:ro"]
    return flags


def _pip_environment(environment: Mapping[str, str]) -> str:
    """The PIP_… variables as `pip config list` would show them."""
    names = ((name, name.removeprefix("PIP_").lower().replace("_", "-")) for name in environment)
    return "\n".join(f":env:.{key}='{environment[name]}'" for name, key in names if name.startswith("PIP_"))


def _buildah(command: str) -> list[str]:
    # Its own storage: whatever else the machine keeps in buildah's stays out of it, and "delete the cache" works.
    storage = CACHE / "images" / "storage"
    folders = ["--root", str(storage), "--runroot", str(storage / "run")]
    return ["buildah", "--storage-driver", "vfs", *folders, command]


def _exists(tag: str) -> bool:
    return (
        subprocess.run([*_buildah("inspect"), "--type", "image", tag], capture_output=True, check=False).returncode == 0
    )


def _logged(command: Sequence[str], *, log: Path, what: str, say: Say) -> None:
    """Run a long command with its output in `log`, saying every ten seconds that it still runs."""
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                seconds = time.monotonic() - began
                if seconds > _BUILD_SECONDS:
                    raise ClusterError(f"{what}: not after {_BUILD_SECONDS:.0f} s; see {log}")
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    say(f"{what}: {seconds + 10:.0f} s")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=30)
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise ClusterError(f"{what} failed with status {process.returncode}:\n{tail}")
    say(f"{what}: done in {time.monotonic() - began:.0f} s")

"""Fetches a function's code at a commit of a git repository: the init container of `examples/function/git.yaml`.

    python3 -m rewardpool_worker.code_from_git https://HOST/ORG/REPOSITORY COMMIT --path FOLDER --into /code

git goes by this command line and nothing else: no configuration, hook, filter, submodule or question. Credentials are
those of `.netrc` in $HOME. The line that is printed in the end has a reason and a sentence, as that of a download has.
"""

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from rewardpool_api.reasons import ConditionReason

SECONDS: Final = 120.0
MIB: Final = 64
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "fetch.unpackLimit=1",  # One file, whose limit is then that of all that is fetched.
    "gc.auto=0",
    "http.followRedirects=false",
    "protocol.version=2",  # Whose servers give any commit that a branch or tag leads to.
)
_NO_COMMIT: Final = re.compile(r"not our ref|unadvertised object|couldn't find remote ref|unable to find [0-9a-f]{40}")
_REFUSED: Final = re.compile(r"could not read (Username|Password)|Authentication failed|returned error: 40[13]")
_NO_REPOSITORY: Final = re.compile(r"repository '.*' not found|returned error: 404")
_REDIRECTED: Final = re.compile(r"returned error: 30[0-9]")


class NoCodeError(RuntimeError):
    """There is no such code, whoever asks and however often."""

    reason = ConditionReason.FUNCTION_NOT_FOUND


class NotFetchedError(RuntimeError):
    """The code cannot be had now."""

    reason = ConditionReason.FUNCTION_NOT_FETCHED


class _Git:
    """git on a repository in a folder whose other files are those of a commit."""

    def __init__(self, folder: Path, *, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._ends = time.monotonic() + seconds

    def run(self, *args: str) -> tuple[int, str, str]:
        """Run a command of git, and return its exit status, what it prints, and what it says of errors.

        Raises:
            NotFetchedError: There is no git, or no time left.
        """
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        try:
            process = subprocess.Popen(
                ["git", *settings, *args],
                cwd=self._folder,
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="surrogateescape",
                start_new_session=True,
                # As Python ignores SIGXFSZ, git does, and then says that a file is too large.
                restore_signals=False,
            )
        except FileNotFoundError as error:
            raise NotFetchedError(
                "the image has no git: build it on a base that has, by --build-arg BASE=python:3.12 for one"
            ) from error
        try:
            printed, errors = process.communicate(timeout=max(0.0, self._ends - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise NotFetchedError(
                f"git {args[0]} was not done in {self._seconds:g} s: see how the host answers, or raise --seconds"
            ) from error
        finally:
            if process.poll() is None:
                # With the programs that it started.
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        return process.returncode, printed, errors

    def _variables(self) -> dict[str, str]:
        """Return the variables, such as a proxy's, without git's own: but for the file of certificates."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        return {
            **kept,
            **{name: os.environ[name] for name in ("GIT_SSL_CAINFO",) if name in os.environ},
            "GIT_DIR": str(self._folder / ".git"),
            "GIT_WORK_TREE": str(self._folder),
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_ALLOW_PROTOCOL": "https:http",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }


def refuse(url: str, commit: str, path: str) -> None:
    """Raise NoCodeError, with the argument's name, where one cannot lead to one commit of a repository."""
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
    except ValueError:
        parts, host, user = urlsplit(""), None, None
    if user is not None:
        raise NoCodeError("the URL has a user or password: take them out, and mount a Secret with .netrc in $HOME")
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
        raise NoCodeError(f"the URL must be https://HOST/REPOSITORY, not {url!r}")
    if re.search(r"[\s?#\x00-\x1f\x7f]", url):
        raise NoCodeError(f"the URL must have neither a space nor ? nor #, but is {url!r}")
    if not _COMMIT.fullmatch(commit):
        raise NoCodeError(
            f"the commit must be 40 digits of 0-9 and a-f, not {commit!r}: a branch or a tag moves, and workers would"
            f" run different code; `git ls-remote {url}` shows the commits of both"
        )
    if path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
        raise NoCodeError(f"--path must be a folder in the repository, such as src, not {path!r}")


def fetch(url: str, commit: str, *, path: str, into: Path, seconds: float, mib: int) -> None:
    """Write the files of one folder of a commit.

    Args:
        commit: Its 40 digits.
        path: The folder in the repository; `.` is the whole.
        into: The folder for its files; is made where it is missing.
        mib: What the files may take together.

    Raises:
        NoCodeError: There is no such code.
        NotFetchedError: It cannot be had now.
    """
    refuse(url, commit, path)
    into.mkdir(parents=True, exist_ok=True)
    repository = into / ".git"
    # An earlier attempt that was killed may have left it.
    shutil.rmtree(repository, ignore_errors=True)
    git = _Git(into, seconds=seconds)
    where = f"{commit} of {url}"

    def run(*args: str) -> str:
        code, printed, errors = git.run(*args)
        if code:
            raise _explained(errors, url, where, mib)
        return printed

    try:
        run("init", "--quiet", "--template=")
        run("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", url, commit)
        if run("cat-file", "-t", commit).strip() != "commit":
            raise NoCodeError(f"{where} is not a commit: give the commit that it leads to")
        inner = str(PurePosixPath(path))
        folder = f"{commit}:{'' if inner == '.' else inner}"
        code, kind, _ = git.run("cat-file", "-t", folder)
        if code or kind.strip() != "tree":
            raise NoCodeError(f"{where} has no folder {path!r}: correct --path")
        links = _links(run("ls-tree", "-r", "-l", "-z", folder), where, mib)
        run("read-tree", folder)
        run("checkout-index", "--all", "--force")
    finally:
        shutil.rmtree(repository, ignore_errors=True)
    whole = into.resolve()
    for link in links:
        if not Path(os.path.realpath(into / link)).is_relative_to(whole):
            raise NoCodeError(f"the link {link} in {where} leads out of {path!r}: put a file in its place")


def _links(listing: str, where: str, mib: int) -> list[str]:
    """Return the paths that are links, from what ls-tree prints; raises NoCodeError where the files take too much."""
    links, size = [], 0
    for entry in listing.split("\0"):
        fields, _, name = entry.partition("\t")
        mode, *_, length = fields.split() or ("", "-")
        size += int(length) if length.isdigit() else 0
        if mode == "120000":
            links.append(name)
    if size > mib * 2**20:
        raise _too_large(where, mib)
    return links


def _too_large(where: str, mib: int) -> NoCodeError:
    return NoCodeError(
        f"{where} takes more than {mib} MiB: keep functions in a repository of their own, or raise --mib"
    )


def _explained(errors: str, url: str, where: str, mib: int) -> RuntimeError:
    if "File too large" in errors:
        return _too_large(where, mib)
    if _NO_COMMIT.search(errors):
        return NoCodeError(f"there is no commit {where}: push it to a branch there, or correct it")
    if _NO_REPOSITORY.search(errors):
        return NoCodeError(f"there is no repository {url}, or none without credentials: correct it, or see .netrc")
    if _REDIRECTED.search(errors):
        return NoCodeError(f"{url} is elsewhere now: give the URL that it redirects to, which may end in .git")
    if _REFUSED.search(errors):
        return NotFetchedError(f"{url} wants credentials: mount a Secret with .netrc, and name its folder by $HOME")
    return NotFetchedError(f"{where}: {(errors.strip() or 'git failed').splitlines()[-1]}")


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch as the arguments say, and return the exit status."""
    parser = argparse.ArgumentParser(prog="code_from_git", description="Fetch a function's code from git.")
    parser.add_argument("url", help="https://HOST/REPOSITORY")
    parser.add_argument("commit", help="its 40 digits")
    parser.add_argument("--path", default=".", help="folder in the repository; default: the whole")
    parser.add_argument("--into", type=Path, required=True, help="folder that gets the files")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="in which it has to be done")
    parser.add_argument("--mib", type=int, default=MIB, help="what the files may take")
    asked = parser.parse_args(argv)
    # The first process of a container ends by no signal that it has not asked for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # git's too: of each file that it writes.
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (asked.mib * 2**20, most))
    try:
        fetch(asked.url, asked.commit, path=asked.path, into=asked.into, seconds=asked.seconds, mib=asked.mib)
    except (NoCodeError, NotFetchedError) as error:
        print(f"{error.reason}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{NotFetchedError.reason}: {asked.into} cannot be written: {error}", file=sys.stderr)
        return 1
    print(f"{asked.commit} of {asked.url} is in {asked.into}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

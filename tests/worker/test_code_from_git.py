"""A function's code from git: the program of the init container, real git, and a host on loopback."""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.git_host import GitHost
from support.ports import free_port

from rewardpool_worker.code_from_git import NoCodeError, refuse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
URL = "https://host.example/org/rewards"
PASSWORD = "hunter2"


@pytest.mark.parametrize(
    ("url", "commit", "path", "said"),
    [
        ("http://host.example/r", COMMIT, ".", "the URL must be https://HOST"),
        ("ssh://host.example/r", COMMIT, ".", "the URL must be https://HOST"),
        ("git@host.example:r", COMMIT, ".", "the URL must be https://HOST"),
        ("file:///r", COMMIT, ".", "the URL must be https://HOST"),
        ("ext::sh -c id", COMMIT, ".", "the URL must be https://HOST"),
        ("--upload-pack=id", COMMIT, ".", "the URL must be https://HOST"),
        ("https://[host/r", COMMIT, ".", "the URL must be https://HOST"),
        (f"https://me:{PASSWORD}@host.example/r", COMMIT, ".", "a user or password"),
        (f"https://{PASSWORD}@host.example/r", COMMIT, ".", "a user or password"),
        (f"{URL}?ref=main", COMMIT, ".", "neither a space nor"),
        (f"{URL}\nx", COMMIT, ".", "neither a space nor"),
        (URL, "main", ".", "a branch or a tag moves"),
        (URL, "v1.0", ".", "not 'v1.0'"),
        (URL, COMMIT[:12], ".", "must be 40 digits"),
        (URL, COMMIT.upper(), ".", "must be 40 digits"),
        (URL, COMMIT, "/etc", "--path must be a folder in the repository"),
        (URL, COMMIT, "src/../..", "--path must be a folder in the repository"),
    ],
)
def test_what_does_not_name_one_commit_is_refused_by_name(url: str, commit: str, path: str, said: str) -> None:
    with pytest.raises(NoCodeError, match=said) as refused:
        refuse(url, commit, path)
    assert PASSWORD not in str(refused.value)


class Repository:
    """One that somebody works in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet")

    def git(self, *args: str) -> str:
        identity = ("-c", "user.name=me", "-c", "user.email=me@host.example")
        command = ["git", "-C", str(self.folder), *identity, *args]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, files: Mapping[str, str]) -> str:
        """Write these files, commit all there are, and return the commit."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=changed")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "hosted" / "rewards")


@pytest.fixture
def host(repository: Repository) -> Iterator[GitHost]:
    with GitHost(repository.folder.parent, "127.0.0.1", 0).serving() as host:
        yield host


@pytest.fixture
def url(host: GitHost) -> str:
    return f"{host.url}/rewards"


def fetched(url: str, commit: str, into: Path, *options: str, **variables: str) -> str:
    """Run the program, and return the line that it prints; `!` is in front of one that failed."""
    argv = [sys.executable, "-m", "rewardpool_worker.code_from_git", url, commit, f"--into={into}", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, env={**os.environ, **variables})
    (line,) = (done.stdout + done.stderr).splitlines()
    return f"! {line}" if done.returncode else line


@pytest.mark.real
def test_each_commit_brings_its_own_code_though_the_branch_went_on(
    repository: Repository, url: str, tmp_path: Path
) -> None:
    commits = [repository.commit({"src/rewards.py": f"VERSION = {version}\n"}) for version in (1, 2)]
    for version, commit in enumerate(commits, start=1):
        into = tmp_path / str(version)
        assert fetched(url, commit, into, "--path=src") == f"{commit} of {url} is in {into}"
        assert {path.name: path.read_text() for path in into.iterdir()} == {"rewards.py": f"VERSION = {version}\n"}


@pytest.mark.real
def test_code_that_is_not_there_is_named_and_no_matter_of_the_network(
    repository: Repository, url: str, tmp_path: Path
) -> None:
    commit = repository.commit({"rewards.py": ""})
    repository.git("tag", "--annotate", "v1", "--message=v1")
    cases = {
        "there is no commit": (url, COMMIT, "."),
        "there is no repository": (f"{url}-of-mine", commit, "."),
        "has no folder 'src'": (url, commit, "src"),
        "has no folder 'rewards.py'": (url, commit, "rewards.py"),
        "is not a commit": (url, repository.git("rev-parse", "v1"), "."),
    }
    for words, (where, what, path) in cases.items():
        said = fetched(where, what, tmp_path / "code", f"--path={path}")
        assert said.startswith("! FunctionNotFound: ")
        assert words in said


@pytest.mark.real
def test_a_host_that_is_away_is_worth_another_attempt(tmp_path: Path) -> None:
    said = fetched(f"http://127.0.0.1:{free_port()}/rewards", COMMIT, tmp_path / "code")
    assert said.startswith("! FunctionNotFetched: ")
    assert COMMIT in said


@pytest.mark.real
def test_a_host_that_does_not_answer_costs_no_more_than_the_time_that_was_given(
    host: GitHost, url: str, tmp_path: Path
) -> None:
    host.silent.set()
    assert "git fetch was not done in 1 s" in fetched(url, COMMIT, tmp_path / "code", "--seconds=1")


@pytest.mark.real
def test_credentials_come_from_netrc(repository: Repository, host: GitHost, url: str, tmp_path: Path) -> None:
    commit = repository.commit({"rewards.py": ""})
    host.authorization = f"Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}"
    said = fetched(url, commit, tmp_path / "code", HOME=str(tmp_path))
    assert said.startswith("! FunctionNotFetched: ")
    assert "wants credentials" in said
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login me password {PASSWORD}\n")
    assert "is in" in fetched(url, commit, tmp_path / "code", HOME=str(tmp_path))


@pytest.mark.real
def test_a_redirect_is_not_followed(host: GitHost, url: str, tmp_path: Path) -> None:
    host.location = "http://127.0.0.1:1/"
    assert "give the URL that it redirects to" in fetched(url, COMMIT, tmp_path / "code")


@pytest.mark.real
@pytest.mark.parametrize("content", [b"#" * 3 * 2**20, os.urandom(3 * 2**20)], ids=["packs well", "does not"])
def test_more_than_the_limit_is_refused(repository: Repository, url: str, tmp_path: Path, content: bytes) -> None:
    (repository.folder / "large").write_bytes(content)
    said = fetched(url, repository.commit({}), tmp_path / "code", "--mib=2")
    assert said.startswith("! FunctionNotFound: ")
    assert "takes more than 2 MiB" in said
    assert not list((tmp_path / "code").iterdir())


@pytest.mark.real
@pytest.mark.parametrize(
    ("links", "refused"),
    [
        ({"a": "/etc/passwd"}, "a"),
        ({"a": "../a"}, "a"),
        ({"d/e": "..", "a": "d/e/../x"}, "a"),
        ({"d/e": "..", "a": "d/e/x"}, None),
    ],
)
def test_a_link_that_leads_out_of_the_folder_is_refused(
    repository: Repository, url: str, tmp_path: Path, links: dict[str, str], refused: str | None
) -> None:
    for name, target in links.items():
        link = repository.folder / "src" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    said = fetched(url, repository.commit({}), tmp_path / "code", "--path=src")
    assert (f"! FunctionNotFound: the link {refused} in" in said) == (refused is not None)


@pytest.mark.real
def test_no_setting_of_the_machine_and_no_file_of_the_repository_runs_anything(
    repository: Repository, url: str, tmp_path: Path
) -> None:
    ran, hooks = tmp_path / "ran", tmp_path / "template" / "hooks"
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        hooks.mkdir(parents=True, exist_ok=True)
        (hooks / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (hooks / name).chmod(0o755)
    (tmp_path / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {hooks}\n[init]\n\ttemplateDir = {hooks.parent}\n"
        f'[filter "lfs"]\n\tsmudge = touch {ran}\n\trequired = true\n[submodule]\n\trecurse = true\n'
    )
    settings = {"GIT_TEMPLATE_DIR": str(hooks.parent), "GIT_CONFIG_GLOBAL": str(tmp_path / ".gitconfig")}
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{COMMIT},submodule")
    (repository.folder / "submodule").mkdir()
    modules = f'[submodule "submodule"]\n\tpath = submodule\n\turl = {url}\n'
    commit = repository.commit({".gitattributes": "*.py filter=lfs\n", ".gitmodules": modules, "rewards.py": "kept\n"})
    assert "is in" in fetched(url, commit, tmp_path / "code", HOME=str(tmp_path), **settings)
    assert ((tmp_path / "code" / "rewards.py").read_text(), ran.exists()) == ("kept\n", False)


@pytest.mark.real
def test_an_image_without_git_says_so(tmp_path: Path) -> None:
    said = fetched(URL, COMMIT, tmp_path / "code", PATH=str(tmp_path))
    assert said.startswith("! FunctionNotFetched: the image has no git")


@pytest.mark.real
def test_what_an_attempt_left_that_was_killed_is_written_over(repository: Repository, url: str, tmp_path: Path) -> None:
    commit = repository.commit({"rewards.py": "VERSION = 1\n"})
    for name in (".git/index", "rewards.py"):
        left = tmp_path / "code" / name
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text("VER")
    assert "is in" in fetched(url, commit, tmp_path / "code")
    assert (tmp_path / "code" / "rewards.py").read_text() == "VERSION = 1\n"

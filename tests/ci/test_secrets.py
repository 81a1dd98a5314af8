"""The search for keys and tokens in the repository's files."""

import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / ".ci"
PLANTED = {
    "AWS": "key = 'AKIA" + "IOSFODNN7ABCDEFG'",
    "GitHub": "token: ghp_" + "a1B2" * 9,
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "in an address": "https://me:" + "hunter2@host.example/",
}


def found(text: str, tmp_path: Path) -> int:
    (tmp_path / "file.txt").write_text(f"a line\n{text}\n")
    command = [sys.executable, "-P", CI / "find_secrets.py", CI / "known-secrets.json", tmp_path / "file.txt"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)
def test_a_secret_in_a_file_fails_the_lint(text: str, tmp_path: Path) -> None:
    assert found(text, tmp_path) == 1


def test_what_the_tests_and_pages_call_a_secret_does_not(tmp_path: Path) -> None:
    assert found("https://me:secret@host.example/", tmp_path) == 0

"""The command line in this process, as its console script runs it."""

import io
import sys
from dataclasses import dataclass

import pytest

import rewardpool_cli

JARGON = ("Traceback", "Value error,", "[Errno", "Input should be", "NoneType", "codec can't", "Error(", "object at 0x")
"""Words of programs that no message to a user has."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """What it said on standard error, which is one line without jargon."""
        [line] = self.err.splitlines()
        assert [word for word in JARGON if word in line] == []
        return line


@dataclass(frozen=True)
class CommandLine:
    """Runs commands of `rewardpool`."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, stdin: bytes = b"", program: str = "rewardpool") -> Ended:
        """Run one until it ends; an error that the command line does not know is raised."""
        self.monkeypatch.setattr(sys, "argv", [program, *arguments])
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            rewardpool_cli.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        seen = self.capsys.readouterr()
        return Ended(code, seen.out, seen.err)


@pytest.fixture
def rewardpool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line."""
    return CommandLine(monkeypatch, capsys)

"""Verdict on a program that a policy wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal[
    "passed",
    "failed",
    "raised",
    "cpu_exceeded",
    "idle_exceeded",
    "memory_exceeded",
    "output_exceeded",
    "crashed",
    "exited",
]
"""End of a program, by the policy's own doing: `failed` had wrong values, `raised` an exception, `crashed` died by a
signal, `exited` ended before it had answered. What the machine caused raises `SandboxError`."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Verdict on a program.

    Attributes:
        outcome: `passed` only where every test was; else that of the first which was not.
        passed: Tests, calls and assertions that were right.
        total: How many there were.
        values: What each call returned, as JSON's types; None for one that returned nothing readable.
        stdout: What it wrote to standard output.
        stderr: What it wrote to standard error.
        cpu_seconds: Processor time of all its processes.
        message: The first failure, in words; empty where all passed.
        exit_code: Of a program, the last one of several: as the shell has it, or minus the number of the signal that
            ended it. None where the sandbox ended it, and of a module.
    """

    outcome: Outcome
    passed: int
    total: int
    values: Sequence[Any] = ()
    stdout: str = ""
    stderr: str = ""
    cpu_seconds: float = 0.0
    message: str = ""
    exit_code: int | None = None

    @property
    def score(self) -> float:
        """Share of what passed, from 0 to 1.

        Raises:
            ValueError: There was no test, and that a program ended says nothing about it.
        """
        if not self.total:
            raise ValueError("nothing was tested: give tests, calls or asserts")
        return self.passed / self.total

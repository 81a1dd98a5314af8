"""A stand-in for nvidia-smi: a script of that name which prints what a test says, whatever it is asked."""

from collections.abc import Sequence
from pathlib import Path


def stand_in_nvidia_smi(folder: Path, lines: Sequence[str], *, code: int = 0) -> None:
    """Put the script into a folder, which is made; for the PATH of what asks it.

    Args:
        folder: Of the script alone.
        lines: What it prints.
        code: With which it ends.
    """
    folder.mkdir(exist_ok=True)
    text = "".join(f"echo '{line}'\n" for line in lines)
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\n{text}exit {code}\n")
    script.chmod(0o755)

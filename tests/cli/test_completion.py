"""What a shell offers while a command is typed, by the script that it loads."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.local_pool import POOL, on_this_machine, write_local_pool

PROGRAM = Path(sys.executable).with_name("rewardpool")


def offered(typed: str) -> list[str]:
    """What bash offers for the last word of a line, once the script is loaded."""
    words = shlex.split(typed) + ([""] if typed.endswith(" ") else [])
    script = (
        f"PATH={PROGRAM.parent}:$PATH; source <(_REWARDPOOL_COMPLETE=source_bash rewardpool);"
        f" COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1};"
        ' _rewardpool_completion rewardpool; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("rewardpool sta", ["status"]),
        ("rewardpool status --na", ["--namespace"]),
        ("rewardpool operator run --le", ["--lease"]),
        ("rewardpool status -o ", ["json", "yaml", "wide", "name"]),
        ("rewardpool logs --component ", ["worker", "router"]),
    ],
)
def test_commands_options_and_values_are_offered(typed: str, words: list[str]) -> None:
    assert offered(typed) == words


def test_pools_of_this_machine_are_offered_where_a_pool_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    write_local_pool(tmp_path)
    assert offered("rewardpool logs ") == [POOL]
    assert offered("rewardpool down other/") == [""]

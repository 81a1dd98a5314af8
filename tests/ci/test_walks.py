"""The script that counts what a walk through the product enters."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_walk_enters_the_modules_that_it_is_about() -> None:
    command = [sys.executable, str(ROOT / "docs" / "walks.py"), "--modules"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    quiet, rest = listed.split("a changed manifest\n", 1)
    changed, rest = rest.split("one sample through `Reward`\n", 1)
    sample, announcement = rest.split("an announcement\n", 1)
    assert "control/rewardpool_control/decide/drain.py" in quiet
    assert "kubernetes/render/worker.py" in changed
    assert "trainer_plugin/rewardpool/_client/request.py" in sample
    assert "trainer_plugin/rewardpool/_demand/announcer.py" in announcement

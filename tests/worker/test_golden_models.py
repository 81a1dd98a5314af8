"""`make golden`: each class has a golden file that `rewardpool verify` reads, and a manifest that is one."""

import os
import subprocess
from pathlib import Path

import pytest
from support import tiny_models
from support.fleet import ROOT, server_python
from support.patience import PATIENCE

from rewardpool_api import load_manifest
from rewardpool_control.golden_set import parse_golden_set

CLASSES = {name.lower() for name in tiny_models.CLASSES} - {"generative"} | {"own-code"}


@pytest.mark.real
def test_every_class_has_a_golden_file_of_distinct_scores_and_a_manifest(tmp_path: Path) -> None:
    job = [server_python(), str(ROOT / "tests/support/golden_models.py"), str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(job, capture_output=True, text=True, timeout=120 * PATIENCE, env=environ, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert {path.name for path in tmp_path.iterdir()} == CLASSES
    for name in CLASSES:
        golden = parse_golden_set((tmp_path / name / "golden.jsonl").read_text())
        scores = [item.expected for item in golden.texts]
        assert None not in scores
        assert len(set(scores)) == len(scores), f"{name} cannot tell its texts apart"
        assert load_manifest(tmp_path / name / "pool.yaml").metadata.name == name

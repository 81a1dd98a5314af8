import json
import math
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rewardpool._score_waits import ScoreWait
from rewardpool_train.actor.records import StepRecord
from rewardpool_train.actor.reporting import reporting


def record(step: int, **changes: Any) -> StepRecord:
    figures = {name: float(step) for name in StepRecord.__dataclass_fields__} | {"step": step, "unscored": 0}
    return StepRecord(**(figures | {"components": {}, "score_wait": ScoreWait()} | changes))


def steps_in(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (path / "metrics.jsonl").read_text().splitlines()]


def curve(output: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(output / "tensorboard")).Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_a_figure_that_does_not_exist_is_null_and_no_point_of_a_curve(tmp_path: Path) -> None:
    with reporting(tmp_path, steps=2, tensorboard=True) as on_step:
        on_step(record(1, loss=math.nan))
        on_step(record(2, loss=0.5))
    first, second = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (first["loss"], second["loss"]) == (None, 0.5)
    assert curve(tmp_path, "update/loss") == [(2, 0.5)]


def test_the_parts_of_a_reward_have_curves_of_their_own(tmp_path: Path) -> None:
    with reporting(tmp_path, steps=1, tensorboard=True) as on_step:
        on_step(record(1, components={"right": 0.5, "wording": math.nan}))
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["components"] == {"right": 0.5, "wording": None}
    assert curve(tmp_path, "reward/reward_right") == [(1, 0.5)]


def test_the_share_of_waiting_for_scores_and_its_parts_are_in_the_line_the_file_and_the_curves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reporting(tmp_path, steps=1, tensorboard=True) as on_step:
        on_step(record(1, score_wait=ScoreWait(share=0.5, queueing=0.375, serving=0.125)))
    written = json.loads((tmp_path / "metrics.jsonl").read_text())["score_wait"]
    assert (written["share"], written["queueing"], written["serving"]) == (0.5, 0.375, 0.125)
    assert curve(tmp_path, "score_wait/score_wait_queueing") == [(1, 0.375)]
    assert "50% for nothing but scores, most of it queueing" in capsys.readouterr().err


def test_a_resumed_job_goes_on_in_the_same_files(tmp_path: Path) -> None:
    with reporting(tmp_path, steps=4, tensorboard=True) as on_step:
        for step in (1, 2, 3):
            on_step(record(step))
    with reporting(tmp_path, steps=4, done=2, tensorboard=True) as on_step:
        for step in (3, 4):
            on_step(record(step, reward_mean=9.0))
    assert steps_in(tmp_path) == [1, 2, 3, 4]
    assert curve(tmp_path, "reward/reward_mean") == [(1, 1.0), (2, 2.0), (3, 9.0), (4, 9.0)]


def test_a_new_job_replaces_the_lines_of_the_one_before(tmp_path: Path) -> None:
    for steps in (3, 1):
        with reporting(tmp_path, steps=steps) as on_step:
            for step in range(1, steps + 1):
                on_step(record(step))
    assert steps_in(tmp_path) == [1]
    assert not (tmp_path / "tensorboard").exists()


def test_people_see_a_line_per_step(tmp_path: Path, capsys: Any) -> None:
    with reporting(tmp_path, steps=1) as on_step:
        on_step(record(1, reward_mean=0.25, unscored=3))
    shown = capsys.readouterr().err
    assert "step    1  reward  0.2500" in shown
    assert "unscored 3" in shown

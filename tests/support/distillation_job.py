"""Distillation on every rank of a job: rank 0 writes what came of it to `results.json` beside the config.

PYTHONPATH=tests torchrun --nproc-per-node N -m support.distillation_job CONFIG
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from support import tiny_policy

from rewardpool._score_waits import ScoreWaits
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.distillation import NoReward
from rewardpool_train.actor.ranks import join_job
from rewardpool_train.actor.teacher_rows import TeacherRows
from rewardpool_train.actor.tokens import Forward
from rewardpool_train.actor.trainer import Trainer
from rewardpool_train.config import load_train_config

FORWARD = Forward(pad_id=tiny_policy.PAD, device=torch.device("cpu"))
DIGITS = 12  # vocabulary of the tiny policy
RESULTS = "results.json"


class TinyTeacher:
    """Stands in for `Teachers`: another tiny policy, computed here; some responses it never answers."""

    def __init__(self, *, top_k: int = 0, silent_about: Sequence[int] = ()) -> None:
        self._model = tiny_policy.make_policy(seed=5)
        self._top_k = top_k
        self._silent_about = silent_about
        self.asked: Counter[int] = Counter()

    def record_waits(self, waits: ScoreWaits) -> None:
        """There is no pool."""

    async def rows(self, prompt: Prompt, rollout: Trajectory) -> TeacherRows | None:
        self.asked[rollout.member] += 1
        if rollout.member in self._silent_about:
            return None
        every = torch.arange(DIGITS).expand(len(rollout.response_ids), DIGITS)
        with torch.no_grad():
            [own], [all_of_them] = FORWARD.log_probs_at(self._model, [rollout], [every])
        top = all_of_them.topk(self._top_k)
        return TeacherRows(own, top.indices, top.values)


def main() -> None:
    """Train."""
    file, teacher = Path(sys.argv[1]), TinyTeacher()
    with join_job(deadline_seconds=60) as ranks:
        trainer = Trainer(load_train_config(file), ranks=ranks, reward=NoReward(), teachers=teacher)
        records = trainer.run(lambda record: None)
        asked = ranks.all_gather(teacher.asked.total())
        if ranks.first:
            found = {"kl": [one.teacher_kl for one in records], "scored": [one.scored for one in records]}
            file.with_name(RESULTS).write_text(json.dumps({**found, "asked": asked}))


if __name__ == "__main__":
    main()

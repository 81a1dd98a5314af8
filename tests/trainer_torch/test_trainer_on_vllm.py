"""The whole training job with a real vLLM as its rollout engine, started and ended by the job itself."""

import json
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest
from support import tiny_policy
from support.fleet import server_python
from support.rates_single import RatesSingle

from rewardpool._rewards.episode import Episode
from rewardpool._rewards.rating import Rating
from rewardpool_train.actor.ranks import join_job
from rewardpool_train.actor.trainer import Trainer
from rewardpool_train.config import TrainConfig

# test_rollout_vllm.py pushes weights to a real vLLM and compares what it samples, and test_trainer.py trains.
pytestmark = [pytest.mark.real, pytest.mark.long]


class FakeReward(RatesSingle):
    """Stands in for a BlockingReward: a response's share of sevens, at once."""

    names = ("sevens",)

    def submit(self, episode: Episode) -> Future[Rating]:
        answer: Future[Rating] = Future()
        score = episode.response.count("7") / max(1, len(episode.response))
        answer.set_result(Rating(total=score, components={"sevens": score}))
        return answer


def config_of(folder: Path) -> TrainConfig:
    tiny_policy.make_policy(seed=0, hidden_size=64).save_pretrained(folder / "policy")
    tiny_policy.make_tokenizer().save_pretrained(folder / "policy")
    (folder / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": digit}) for digit in "123456"))
    return TrainConfig.model_validate(
        {
            "policy": {"path": folder / "policy"},
            "data": {"prompts": folder / "prompts.jsonl"},
            "reward": {"pool": "default/none"},
            "rollout": {
                "engine": "vllm",
                "prompts_per_step": 4,
                "group_size": 8,
                "max_new_tokens": 12,
                "vllm": {"python": server_python(), "args": ["--enforce-eager"]},
            },
            "update": {"groups_per_minibatch": 4, "learning_rate": 1e-2},
            "schedule": "sync",
            "steps": 4,
            "output": folder / "out",
        }
    )


def test_a_job_trains_on_what_vllm_samples_with_the_weights_of_each_step(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with join_job(deadline_seconds=600) as ranks:
        trainer = Trainer(config, ranks=ranks, reward=FakeReward())
        records = trainer.run(lambda record: None)
    assert (trainer.tally.submitted, trainer.tally.scored) == (4 * 32, 4 * 32)
    # Had a push not arrived, the policy that trains would have drifted from the one that sampled.
    assert max(abs(record.approx_kl) for record in records) < 1e-4
    assert min(record.grad_norm for record in records) > 1e-2
    served = str(config.policy.path)
    assert not [one for one in psutil.process_iter(["cmdline"]) if served in (one.info["cmdline"] or [])]

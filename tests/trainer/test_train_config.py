from pathlib import Path
from typing import Any

import pytest
import yaml

from rewardpool.errors import ConfigError
from rewardpool_train.config import RolloutConfig, TrainConfig, load_train_config
from rewardpool_train.objective import PRESETS
from rewardpool_train.update_config import UpdateConfig

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart" / "train.yaml"


def written(folder: Path, **changes: Any) -> Path:
    """A config file that is right but for the changes."""
    (folder / "policy").mkdir(exist_ok=True)
    right = {
        "policy": {"path": "policy"},
        "data": {"prompts": "prompts.jsonl"},
        "reward": {"pool": "rl/skywork"},
        "output": "out",
    }
    path = folder / "train.yaml"
    path.write_text(yaml.safe_dump(right | changes))
    return path


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rollout": {"group_size": 1}}, "rollout.group_size"),
        ({"rollout": {"groupsize": 4}}, "rollout.groupsize"),
        ({"update": {"learning_rate": "fast"}}, "update.learning_rate"),
        ({"update": {"order": "random"}}, "update.order"),
        ({"reward": {"pool": "skywork"}}, "reward.pool"),
        ({"reward": {"pool": "rl/skywork", "on_failure": "zero"}}, "reward.on_failure"),
        ({"data": {}}, "data.prompts"),
        ({"steps": 0}, "steps"),
        ({"learning_rate": 1e-3}, "learning_rate"),
        ({"policy": {"path": "nowhere"}}, "policy.path"),
        ({"colocated": {"longest_wait_seconds": 0}}, "colocated.longest_wait_seconds"),
        ({"colocated": {"enabled": True}, "schedule": "fully_async"}, "schedule"),
        ({"reward": None}, "reward"),
        ({"distillation": {}}, "distillation.teacher"),
        ({"distillation": {"teacher": "teacher"}}, "distillation.teacher.pool"),
        ({"distillation": {"teacher": "rl/t", "top_k": 2000}}, "distillation.top_k"),
        ({"distillation": {"by_data_source": {"code": {"x": 1}}}}, "distillation.by_data_source.code.x"),
        (
            {"distillation": {"teacher": {"pool": "rl/t", "on_failure": {"policy": {"penalty": 0}}}}},
            "distillation.teacher.on_failure.policy",
        ),
        ({"distillation": {"teacher": "rl/t"}, "rollout": {"temperature": 0.7}}, "rollout.temperature"),
        ({"distillation": {"teacher": "rl/t"}, "update": {"algorithm": "gspo"}}, "update.ratio"),
        ({"distillation": {"teacher": "rl/t"}, "update": {"only_informative": True}}, "update.only_informative"),
    ],
)
def test_a_mistake_is_named_by_the_fields_path(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_train_config(written(tmp_path, **changes))
    assert caught.value.field == field


def test_all_mistakes_are_told_at_once_with_what_a_misspelt_key_meant(tmp_path: Path) -> None:
    wrong = {"update": {"lerning_rate": 1}, "stepz": 3, "reward": {"pool": "skywork"}}
    with pytest.raises(ConfigError) as caught:
        load_train_config(written(tmp_path, **wrong))
    assert str(caught.value).splitlines() == [
        "update.lerning_rate: unknown key; did you mean learning_rate?",
        "stepz: unknown key; did you mean steps?",
        "reward.pool: must be namespace/name of a RewardPool, such as rl/skywork",
    ]


@pytest.mark.parametrize("text", ["policy: [", "- a list", ""])
def test_a_file_that_is_no_mapping_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        load_train_config(path)


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load_train_config(written(tmp_path))
    assert config.data.prompts == tmp_path / "prompts.jsonl"
    assert config.output == tmp_path / "out"


@pytest.mark.parametrize(
    ("per_step", "per_minibatch", "ranks", "field"),
    [(8, 3, 2, "update.groups_per_minibatch"), (6, 4, 2, "rollout.prompts_per_step")],
)
def test_work_that_the_ranks_cannot_share_is_refused(
    tmp_path: Path, per_step: int, per_minibatch: int, ranks: int, field: str
) -> None:
    config = load_train_config(
        written(
            tmp_path,
            rollout={"prompts_per_step": per_step},
            update={"groups_per_minibatch": per_minibatch},
        )
    )
    with pytest.raises(ConfigError, match=f"{field}: must be a multiple of"):
        config.check_ranks(ranks)


def test_the_quick_starts_config_is_right_and_finds_its_pool_by_name_only() -> None:
    config = TrainConfig.model_validate(yaml.safe_load(QUICKSTART.read_text()))
    config.check_ranks(2)
    assert config.reward == {"pool": "default/quickstart"}


def test_an_algorithm_is_a_set_of_choices(tmp_path: Path) -> None:
    chosen = load_train_config(written(tmp_path, update={"algorithm": "dr_grpo"})).update
    objective = chosen.objective(fixed_length=48)
    assert (objective.advantage_scale, objective.loss_agg_mode, objective.fixed_length) == (
        "none",
        "seq-mean-token-sum-norm",
        48,
    )


def test_a_field_that_is_set_wins_over_the_algorithms(tmp_path: Path) -> None:
    chosen = load_train_config(written(tmp_path, update={"algorithm": "dapo", "clip_high": 0.3})).update
    assert (chosen.loss_agg_mode, chosen.clip_low, chosen.clip_high) == ("token-mean", 0.2, 0.3)


@pytest.mark.parametrize("algorithm", PRESETS)
def test_every_choice_of_an_algorithm_is_a_field_that_takes_it(algorithm: str) -> None:
    chosen = UpdateConfig.model_validate({"algorithm": algorithm})
    assert {name: getattr(chosen, name) for name in PRESETS[algorithm]} == PRESETS[algorithm]  # type: ignore[index]


def test_an_algorithm_that_is_not_known_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"update\.algorithm"):
        load_train_config(written(tmp_path, update={"algorithm": "ppo"}))


@pytest.mark.parametrize(("size", "least"), [(2, 2), (3, 2), (8, 4), (9, 5)])
def test_a_group_goes_on_with_half_of_its_members_scored(size: int, least: int) -> None:
    assert RolloutConfig(group_size=size).least_members == least
    assert RolloutConfig(group_size=size, min_members=2).least_members == 2


def test_a_group_cannot_need_more_scores_than_it_has_members(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="min_members is 5, more than group_size, which is 4"):
        load_train_config(written(tmp_path, rollout={"group_size": 4, "min_members": 5}))


@pytest.mark.parametrize("update", [{"dynamic_sampling_rounds": 1}, {"algorithm": "dapo"}])
def test_groups_of_no_step_cannot_be_replaced(tmp_path: Path, update: dict[str, Any]) -> None:
    config = load_train_config(written(tmp_path, schedule="fully_async", update=update))
    with pytest.raises(ConfigError, match=r"update\.dynamic_sampling_rounds: must be 0 under fully_async"):
        config.check_ranks(1)


def test_weights_that_would_be_handed_over_too_seldom_are_refused(tmp_path: Path) -> None:
    config = load_train_config(written(tmp_path, schedule="fully_async", max_staleness=1, publish_every=3))
    with pytest.raises(ConfigError, match=r"publish_every: must be at most max_staleness \+ 1, which is 2"):
        config.check_ranks(1)

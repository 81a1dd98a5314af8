"""Jobs of one and of two ranks, in which one rank cannot go on, or a gradient is no number."""

from typing import Any

import pytest
import torch
from support import tiny_policy
from support.torchrun import run_job


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.long), 2])
def met(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank of a job met."""
    folder = tmp_path_factory.mktemp("guards")
    tiny_policy.make_policy(seed=3).save_pretrained(folder / "policy")
    tiny_policy.make_policy(seed=4, tied=True).save_pretrained(folder / "tied")
    run = run_job("support.guards_job", folder, ranks=request.param, seconds=240)
    assert run.returncode == 0, run.stderr
    return [torch.load(folder / f"result.{rank}", weights_only=False) for rank in range(request.param)]


def test_a_full_folder_for_weights_is_named_by_rank_0_and_ends_the_other_ranks_at_once(met: list[Any]) -> None:
    first, *others = (rank["full"]["push"] for rank in met)
    assert first["type"] == "RolloutError"
    assert "rollout.vllm.weights_folder" in first["text"]
    for other in others:
        assert (other["type"], "rank 0 failed: RolloutError" in other["text"]) == ("OtherRankError", True)
        assert other["seconds"] < 30


def test_a_rank_that_cannot_write_its_part_of_a_checkpoint_ends_the_others_at_once(met: list[Any]) -> None:
    first, *others = (rank["full"]["save"] for rank in met)
    assert first["type"] in ("OSError", "RuntimeError")  # the latter is torch.save's
    assert [other["type"] for other in others] == ["OtherRankError"] * len(others)


def test_a_gradient_that_is_no_number_on_one_rank_changes_nothing_on_any(met: list[Any]) -> None:
    for rank in met:
        assert rank["odd"]["skipped"].skipped
        assert rank["odd"]["unchanged"]
        assert rank["odd"]["optimizer"] == 0  # AdamW has seen no gradient
        assert not rank["odd"]["next"].skipped
        assert rank["odd"]["next"].grad_norm > 0


def test_too_many_such_gradients_in_a_row_end_the_job_with_good_weights(met: list[Any]) -> None:
    for rank in met:
        assert rank["odd"]["in a row"] == [None, None, "TrainingError"]
        assert rank["odd"]["finite"]


@pytest.mark.parametrize(("name", "tied"), [("loaded", False), ("tied", True)])
def test_a_policy_of_which_rank_0_has_the_weights_is_the_same_bit_for_bit(
    met: list[Any], name: str, tied: bool
) -> None:
    policy = tiny_policy.make_policy(seed=4 if tied else 3, tied=tied)
    for rank in met:
        found = rank[name]
        assert all(torch.equal(found["weights"][key], weight) for key, weight in policy.named_parameters())
        assert (found["tied"], found["meta"], found["training"]) == (tied, False, False)
        assert all(map(torch.equal, found["buffers"], policy.buffers()))
    assert len({rank[name]["stats"] for rank in met}) == 1


def test_no_rank_but_the_first_has_more_than_a_layer_of_a_policy_whole(met: list[Any]) -> None:
    policy = tiny_policy.make_policy(seed=3)
    layer = sum(weight.numel() for weight in policy.model.layers[0].parameters())
    root = sum(weight.numel() for weight in policy.parameters()) - 2 * layer
    for rank in met[1:]:
        assert rank["loaded"]["whole"] == max(layer, root)


def test_a_policy_that_rank_0_cannot_load_ends_the_other_ranks_at_once(met: list[Any]) -> None:
    assert [rank["missing"]["type"] for rank in met] == ["ConfigError", "OtherRankError"][: len(met)]


def test_all_ranks_scale_by_the_scores_of_all(met: list[Any]) -> None:
    assert [rank["moments"] for rank in met] == [(0.0, 1.0) if len(met) == 1 else (0.5, 0.5)] * len(met)

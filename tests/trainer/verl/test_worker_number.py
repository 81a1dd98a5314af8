import pytest

from rewardpool.verl.announced import number_in


@pytest.mark.parametrize(
    ("actor", "number"),
    [("reward_loop_worker_3", 3), ("agent_loop_worker_12_09418273", 12), ("agent_loop_worker_0_5d1e07c2", 0), ("", 0)],
)
def test_a_worker_has_the_number_that_verl_wrote_into_its_name(actor: str, number: int) -> None:
    assert number_in(actor) == number

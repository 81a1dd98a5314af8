"""Parts become one rating: what is asked, what is kept, and what a failed part does to the total."""

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool._rewards import Episode, Rating
from rewardpool._rewards.composite import CompositeReward, OpenPart, PostProcess
from rewardpool._rewards.part_config import LengthPenaltyPart
from rewardpool._rewards.reward_function import PartScore
from rewardpool._rewards.score_noise import EPSILON
from rewardpool.errors import BrokenPoolError, ConfigError, FunctionFailedError, SampleError, ScoreError
from rewardpool_api.contract import FAULTS

Script = Mapping[str, Any]
"""Scores by the episode's response; None fails, and so does a fault, by that."""


class ScriptedScorer:
    """Scores by a table, and remembers whom it was asked about."""

    def __init__(self, script: Script) -> None:
        self.asked: list[str] = []
        self._script = script

    async def score(self, episode: Episode) -> PartScore:
        self.asked.append(episode.response)
        value = self._script[episode.response]
        if value is None or isinstance(value, str):
            raise ScoreError(episode.label, "no usable answer", fault=value)
        return PartScore(value, {"words": episode.response})


class ScriptedComparer:
    """Scores a group by the number of its members."""

    async def compare(self, episodes: Sequence[Episode]) -> list[PartScore | SampleError]:
        return [PartScore(float(len(episodes))) for _ in episodes]


def part(name: str, script: Script, **fields: Any) -> OpenPart:
    length_penalty = {"max_tokens": 1, "buffer_tokens": 1}
    config = LengthPenaltyPart.model_validate({"name": name, "length_penalty": length_penalty, **fields})
    return OpenPart(config, f"reward.{name}", ScriptedScorer(script))


def asked(opened: OpenPart) -> list[str]:
    assert isinstance(opened.reward_function, ScriptedScorer)
    return opened.reward_function.asked


def episode(response: str = "x") -> Episode:
    return Episode(prompt="?", response=response, id=response)


async def rate(*parts: OpenPart, combine: str = "sum", of: str = "x") -> Rating:
    return await CompositeReward(parts, combine=combine).rate(episode(of))


async def rate_group(
    responses: str, *parts: OpenPart, combine: str = "sum", post_process: PostProcess | None = None
) -> list[Rating]:
    reward = CompositeReward(parts, combine=combine, post_process=post_process)
    return await reward.rate_group([episode(response) for response in responses])


async def test_weighted_scores_are_summed_and_the_raw_ones_kept() -> None:
    rating = await rate(part("a", {"x": 3.0}, weight=2.0, clip=[0, 1]), part("b", {"x": -1.0}, weight=0.5))
    assert rating.total == 1.5
    assert rating.components == {"a": 3.0, "b": -1.0}
    assert rating.info == {"a": {"words": "x"}, "b": {"words": "x"}}
    assert rating.error is None


async def test_a_product_multiplies_weighted_scores() -> None:
    rating = await rate(part("a", {"x": 3.0}, weight=2.0), part("b", {"x": 0.5}), combine="product")
    assert rating.total == 3.0


SCORES = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=5)


@given(SCORES.flatmap(lambda rows: st.permutations(list(enumerate(rows)))), st.sampled_from(["sum", "product"]))
def test_the_order_of_parts_changes_no_total_and_no_component(
    shuffled: list[tuple[int, tuple[float, float]]], combine: str
) -> None:
    def rated(rows: list[tuple[int, tuple[float, float]]]) -> Rating:
        parts = [part(f"p{index}", {"x": score}, weight=weight) for index, (score, weight) in rows]
        return asyncio.run(rate(*parts, combine=combine))

    one, other = rated(shuffled), rated(sorted(shuffled))
    assert one.total == other.total
    assert one.components == other.components == {f"p{index}": score for index, (score, _) in shuffled}


async def test_a_failed_part_raises_its_error_and_cancels_the_others() -> None:
    cancelled = asyncio.Event()

    class Waiting:
        async def score(self, _: Episode) -> PartScore:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError("unreachable")

    waiting = OpenPart(part("slow", {}).config, "reward.slow", Waiting())
    with pytest.raises(ScoreError, match="sample x: no usable answer"):
        await rate(waiting, part("bad", {"x": None}))
    assert cancelled.is_set()


async def test_a_skipped_part_leaves_the_total_out_and_the_other_scores_in() -> None:
    rating = await rate(part("a", {"x": None}, on_failure="skip"), part("b", {"x": 2.0}))
    assert rating.total is None
    assert rating.components == {"a": None, "b": 2.0}
    assert isinstance(rating.error, ScoreError)


PENALTY = {"policy": {"penalty": -1.0}, "verifier": "skip", "infra": "skip", "capacity": "skip"}


async def test_a_penalty_counts_in_the_total_and_is_no_component() -> None:
    penalised = part("a", {"x": FAULTS[0], "y": 5.0}, on_failure=PENALTY, weight=2.0)
    rating, _ = await rate_group("xy", penalised, part("b", {"x": 2.0, "y": 2.0}))
    assert rating.total == 0.0
    assert rating.components == {"a": None, "b": 2.0}
    assert rating.error is not None
    assert rating.error.fault == "policy"


@pytest.mark.parametrize("fault", FAULTS[1:])
async def test_a_failure_that_the_policy_did_not_cause_gets_no_penalty(fault: Any) -> None:
    opened = part("a", {"x": fault, "y": 5.0}, on_failure=PENALTY)
    rating, _ = await rate_group("xy", opened)
    assert (rating.total, rating.error and rating.error.fault) == (None, fault)


async def test_a_fault_that_the_mapping_leaves_out_raises() -> None:
    with pytest.raises(ScoreError):
        await rate(part("a", {"x": "capacity"}, on_failure={"verifier": "skip"}))


async def test_the_penalty_waits_for_a_score_of_the_part_while_another_response_is_under_way() -> None:
    opened = part("a", {"x": "policy", "y": 5.0}, on_failure=PENALTY)
    opened.breaker.begun()
    penalised = asyncio.create_task(rate(opened, of="x"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not penalised.done()
    await rate(opened, of="y")
    assert (await penalised).total == -1.0


async def test_a_response_that_is_rated_alone_waits_for_no_other() -> None:
    opened = part("a", {"x": "policy", "y": 5.0}, on_failure=PENALTY)
    async with asyncio.timeout(10):
        first, _, again = await rate(opened, of="x"), await rate(opened, of="y"), await rate(opened, of="x")
    assert (first.total, again.total) == (None, -1.0)


async def test_a_part_that_only_fails_is_an_error_of_the_pool_under_every_policy() -> None:
    names = [str(number) for number in range(100)]
    opened = part("a", dict.fromkeys(names, "verifier"), on_failure=PENALTY)
    ends = await asyncio.gather(*(rate(opened, of=name) for name in names), return_exceptions=True)
    assert [end.total for end in ends if isinstance(end, Rating)] == [None] * 15
    assert {type(end) for end in ends if not isinstance(end, Rating)} == {BrokenPoolError}


async def test_held_responses_get_the_error_of_a_part_that_turns_out_broken() -> None:
    names = [str(number) for number in range(20)]
    opened = part("a", dict.fromkeys(names, "policy"), on_failure=PENALTY)
    opened.breaker.begun()
    ends = await asyncio.gather(*(rate(opened, of=name) for name in names), return_exceptions=True)
    assert {type(end) for end in ends} == {BrokenPoolError}


GATE = {"at_least": 1.0, "floor": -1.0}


async def test_behind_a_closed_gate_nothing_is_asked_and_its_floor_is_the_total() -> None:
    cheap, second, costly = (
        part("cheap", {"x": 0.5}, gate=GATE),
        part("second", {"x": 1.0}, gate=GATE),
        part("costly", {"x": 9.0}),
    )
    rating = await rate(cheap, second, costly, combine="gate")
    assert rating.total == -1.0
    assert rating.components == {"cheap": 0.5, "second": None, "costly": None}
    assert (asked(second), asked(costly)) == ([], [])


async def test_open_gates_add_nothing_to_the_sum_of_the_others() -> None:
    parts = [part("gate", {"x": 1.0}, gate=GATE), part("a", {"x": 2.0}), part("b", {"x": 3.0})]
    rating = await rate(*parts, combine="gate")
    assert (rating.total, rating.components) == (5.0, {"gate": 1.0, "a": 2.0, "b": 3.0})


async def test_a_gate_without_a_score_leaves_the_total_out_and_asks_nothing_more() -> None:
    costly = part("costly", {"x": 9.0})
    rating = await rate(part("gate", {"x": None}, gate=GATE, on_failure="skip"), costly, combine="gate")
    assert (rating.total, asked(costly)) == (None, [])


async def test_gates_stop_episodes_one_by_one() -> None:
    costly = part("costly", {"a": 5.0, "b": 6.0, "c": 7.0})
    ratings = await rate_group("abc", part("gate", {"a": 1, "b": 0, "c": 2}, gate=GATE), costly, combine="gate")
    assert [rating.total for rating in ratings] == [5.0, -1.0, 7.0]
    assert asked(costly) == ["a", "c"]


class WaitingGate:
    """Opens for each episode when the test says so."""

    def __init__(self) -> None:
        self.opens = {response: asyncio.Event() for response in "abc"}

    async def score(self, episode: Episode) -> PartScore:
        await self.opens[episode.response].wait()
        return PartScore(1.0)


async def test_parts_of_an_episode_start_when_its_own_gate_is_answered() -> None:
    waiting, costly = WaitingGate(), part("costly", {"a": 5.0, "b": 6.0, "c": 7.0})
    gate = OpenPart(part("gate", {}, gate=GATE).config, "reward.gate", waiting)
    rating = asyncio.create_task(rate_group("abc", gate, costly, combine="gate"))
    for opened, so_far in (("b", ["b"]), ("a", ["b", "a"]), ("c", ["b", "a", "c"])):
        waiting.opens[opened].set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert asked(costly) == so_far
    assert [rated.total for rated in await rating] == [5.0, 6.0, 7.0]


async def test_a_comparison_behind_a_gate_has_all_that_came_through_in_their_order() -> None:
    compared: list[str] = []

    class Noting:
        async def compare(self, episodes: Sequence[Episode]) -> list[PartScore | SampleError]:
            compared.extend(episode.response for episode in episodes)
            return [PartScore(float(len(episodes))) for _ in episodes]

    waiting = WaitingGate()
    gates = [OpenPart(part("slow", {}, gate=GATE).config, "reward.slow", waiting)]
    gates.append(part("strict", {"a": 1, "b": 0, "c": 2}, gate=GATE))
    comparing = OpenPart(part("pairs", {}).config, "reward.pairs", Noting())
    rating = asyncio.create_task(rate_group("abc", *gates, comparing, combine="gate"))
    for opened in "cab":
        waiting.opens[opened].set()
        await asyncio.sleep(0)
    assert [rated.total for rated in await rating] == [2.0, -1.0, 2.0]
    assert compared == ["a", "c"]


async def test_a_group_is_normalized_among_those_that_have_a_score() -> None:
    one = part("a", {"a": 1.0, "b": None, "c": 3.0}, normalize="group", on_failure="skip")
    ratings = await rate_group("abc", one, part("b", {"a": 0, "b": 0, "c": 0}))
    assert [rating.total for rating in ratings] == [-1 / (1 + EPSILON), None, 1 / (1 + EPSILON)]
    assert [rating.components["a"] for rating in ratings] == [1.0, None, 3.0]


async def test_a_part_is_normalized_without_the_responses_that_another_part_leaves_unscored() -> None:
    one = part("a", {"a": 1.0, "b": 900.0, "c": 3.0}, normalize="group")
    other = part("b", {"a": 0, "b": None, "c": 0}, on_failure="skip")
    ratings = await rate_group("abc", one, other)
    assert [rating.total for rating in ratings] == [-1 / (1 + EPSILON), None, 1 / (1 + EPSILON)]
    assert [rating.components["a"] for rating in ratings] == [1.0, 900.0, 3.0]


async def test_a_group_is_normalized_by_the_steps_of_its_reward_models_numbers() -> None:
    one = part("a", {"a": 20.0, "b": 20.125}, normalize="group")
    assert [rating.total for rating in await rate_group("ab", one)] == pytest.approx([-1, 1], abs=1e-2)
    in_bfloat16 = dataclasses.replace(one, score_dtype="bfloat16")
    assert [rating.total for rating in await rate_group("ab", in_bfloat16)] == [0.0, 0.0]


async def test_a_group_of_one_is_normalized_to_zero_and_its_raw_score_kept() -> None:
    [rating] = await rate_group("a", part("a", {"a": 5.0}, normalize="group"))
    assert (rating.total, rating.components) == (0.0, {"a": 5.0})


async def test_normalization_by_fixed_moments_takes_the_mean_away_and_divides_by_the_deviation() -> None:
    rating = await rate(part("a", {"x": 7.0}, normalize={"mean": 1.0, "std": 3.0}, weight=0.5))
    assert (rating.total, rating.components) == (1.0, {"a": 7.0})


async def test_running_normalization_without_a_version_is_refused_before_anything_is_asked() -> None:
    running = part("a", {"x": 7.0}, normalize="running")
    with pytest.raises(ConfigError, match=r"^reward\.a\.normalize: .*set \{mean: x, std: y\}"):
        await rate(running)
    assert asked(running) == []


@pytest.mark.parametrize("field", ["normalize", "compare", "post_process"])
async def test_what_needs_a_group_says_so_and_refuses_single_episodes(field: str) -> None:
    parts = {
        "normalize": part("a", {"x": 1.0}, normalize="group"),
        "compare": OpenPart(part("a", {}).config, "reward.a", ScriptedComparer()),
        "post_process": part("a", {"x": 1.0}),
    }
    reward = CompositeReward([parts[field]], post_process=(lambda _: [0.0]) if field == "post_process" else None)
    assert reward.needs_group
    with pytest.raises(ConfigError, match="needs the whole group"):
        await reward.rate(episode())
    assert len(await reward.rate_group([episode()])) == 1


async def test_an_empty_group_has_no_ratings() -> None:
    assert await rate_group("", part("a", {}), post_process=lambda _: []) == []


async def test_post_process_makes_totals_of_a_groups_ratings_and_leaves_the_components() -> None:
    def best_takes_all(ratings: Sequence[Rating]) -> list[float | None]:
        totals = [rating.total or 0.0 for rating in ratings]
        return [1.0 if total == max(totals) else None for total in totals]

    ratings = await rate_group("ab", part("a", {"a": 2.0, "b": 7.0}), post_process=best_takes_all)
    assert [rating.total for rating in ratings] == [None, 1.0]
    assert [rating.components for rating in ratings] == [{"a": 2.0}, {"a": 7.0}]


@pytest.mark.parametrize(
    "totals", [[], [1.0, 2.0], [math.nan], [10**400], pytest.param([-(10**5000)], id="digits"), ["1"], [True], None]
)
async def test_what_post_process_may_not_give_is_an_error(totals: Any) -> None:
    with pytest.raises(FunctionFailedError, match="post_process"):
        await rate_group("a", part("a", {"a": 1.0}), post_process=lambda _: totals)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
async def test_whatever_post_process_raises_is_its_failure(raised: type[BaseException]) -> None:
    def hook(_: Sequence[Rating]) -> list[float]:
        raise raised("of the hook")

    with pytest.raises(FunctionFailedError, match=f"post_process failed: {raised.__name__}: of the hook"):
        await rate_group("a", part("a", {"a": 1.0}), post_process=hook)


async def test_a_total_that_is_no_finite_number_is_an_error() -> None:
    with pytest.raises(ScoreError, match="lower the weights"):
        await rate(part("a", {"x": 1e308}, weight=10.0))


@given(st.dictionaries(st.sampled_from("abcd"), st.none() | st.floats(-10, 10), min_size=1))
def test_every_rating_has_every_component_and_a_total_only_if_all_have_a_score(script: dict[str, float | None]) -> None:
    parts = [part(name, {"x": score}, on_failure="skip") for name, score in script.items()]
    rating = asyncio.run(rate(*parts))
    assert rating.components == script
    assert (rating.total is None) == (None in script.values()) == (rating.error is not None)

"""One group, one scorer: which revision a group shall have, and that no group is rated by two."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from support.revisions import GROUPS, POOL, Workers, group, plays, reward_by, served

from rewardpool import Reward
from rewardpool._client.answering import current
from rewardpool._rewards.composite import CompositeReward, OpenPart
from rewardpool._rewards.config import parse_reward
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.one_revision import Answered, Claims, is_split, wanted_of
from rewardpool._rewards.reward_function import PartScore
from rewardpool.errors import RevisionGoneError
from rewardpool_api.contract import Signature

A, B = frozenset({"a"}), frozenset({"b"})


def by(*revisions: frozenset[str]) -> list[Answered]:
    return [Answered({POOL: revision} if revision else {}) for revision in revisions]


@pytest.mark.parametrize(
    ("members", "split", "wanted"),
    [
        ([], False, {}),
        (by(A, A), False, {POOL: "a"}),
        (by(frozenset(), frozenset()), False, {}),
        (by(A, frozenset()), False, {POOL: "a"}),
        (by(A, A, B), True, {POOL: "a"}),
        (by(A, B, B), True, {POOL: "b"}),
        (by(A, B), True, {POOL: "b"}),
        (by(A | B, A), True, {POOL: "a"}),
        ([*by(A, A), Answered(gone={POOL: "b"})], True, {POOL: "b"}),
        ([*by(A, A), Answered(gone={POOL: None})], True, {POOL: "a"}),
        ([Answered(gone={POOL: None})], True, {}),
        ([Answered({POOL: A, "rl/other": B}), Answered({POOL: B, "rl/other": B})], True, {POOL: "b", "rl/other": "b"}),
    ],
)
def test_the_revision_of_a_group(members: list[Answered], split: bool, wanted: dict[str, str]) -> None:
    assert (is_split(members), wanted_of(members)) == (split, wanted)


async def test_a_group_that_two_revisions_scored_is_asked_again_of_one() -> None:
    workers = Workers("a", "a", "b")
    async with reward_by(workers) as (reward, pool):
        ratings = await reward.rate_group(group())
        report = pool.report()
    assert len({rating.total for rating in ratings}) == 1
    assert report.asked_again > 0


async def test_a_group_of_one_revision_is_asked_once() -> None:
    workers = Workers("a")
    async with reward_by(workers) as (reward, pool):
        await reward.rate_group(group())
        report = pool.report()
    assert (workers.scored, report.asked_again) == (8, 0)


async def test_the_key_switches_it_off() -> None:
    workers = Workers("a", "b")
    async with reward_by(workers, one_revision=False) as (reward, _):
        ratings = await reward.rate_group(group())
    assert {rating.total for rating in ratings} == {1.0, 2.0}
    assert workers.scored == 8


async def test_members_that_never_agree_are_unscored_and_never_mixed() -> None:
    workers = Workers("a", "b", refuse=False)  # of an earlier version, which ignores the wanted revision
    settings = {"on_failure": "skip", "timeout": 0.5}
    async with reward_by(workers, **settings) as (reward, _):
        ratings = await reward.rate_group(group(size=3))
    totals = {rating.total for rating in ratings if rating.total is not None}
    assert len(totals) <= 1


async def test_no_group_is_split_while_the_pool_is_rolled_out_and_back() -> None:
    chance = random.Random(7)
    workers = Workers("a")
    split = scored = 0
    async with reward_by(workers, timeout=60) as (reward, pool):
        for number, revisions in enumerate(plays(GROUPS)):
            chance.shuffle(revisions)
            rating = asyncio.ensure_future(reward.rate_group(group(number)))
            await asyncio.sleep(0)
            workers.revisions = revisions  # while the group is on its way
            ratings = await rating
            split += len({one.total for one in ratings}) > 1
            scored += sum(one.total is not None for one in ratings)
        report = pool.report()
    assert (split, scored) == (0, GROUPS * 8)
    assert report.asked_again > 0


async def test_a_wanted_revision_that_is_gone_has_the_group_asked_of_the_other() -> None:
    workers = Workers("a", "a", "b")
    async with reward_by(workers, timeout=30) as (reward, _):
        rating = asyncio.ensure_future(reward.rate_group(group()))
        while workers.scored < 8:  # noqa: ASYNC110 - the stand-in tells nobody
            await asyncio.sleep(0)
        workers.revisions = ["b"]
        ratings = await rating
    assert {rating.total for rating in ratings} == {2.0}


async def test_a_group_that_was_rated_one_by_one_is_settled_by_asking_the_others_again() -> None:
    workers = Workers("a", "a", "b")
    async with reward_by(workers) as (reward, pool):
        before = [await reward.rate(episode) for episode in group(size=3)]
        workers.revisions = ["a", "b"]
        after = await reward.settled(group(size=3), before)
        report = pool.report()
    assert [one.total for one in before] == [1.0, 1.0, 2.0]
    assert [one.revisions for one in after] == [{POOL: ("a",)}] * 3
    assert after[:2] == before[:2]
    assert (report.asked_again, report.groups_asked_again) == (1, 1)


async def test_a_batch_is_settled_group_by_group() -> None:
    workers = Workers("a", "b")
    async with reward_by(workers) as (reward, _):
        groups = [group(number, size=1) for number in range(8)]
        alone = await reward.rate_batch([one for [one] in groups])
        assert {rating.total for rating in alone} == {1.0, 2.0}  # no two of them are of one group
        pairs = await reward.rate_batch([one for number in range(8) for one in group(number, size=2)])
        unnamed = await reward.rate_batch([replace(one, group=None) for one in group(size=8)])
    assert all(one.total == other.total for one, other in zip(pairs[::2], pairs[1::2], strict=True))
    assert len({rating.total for rating in unnamed}) == 1  # equal in everything but the response


async def test_where_ratings_are_handed_on_the_first_member_decides() -> None:
    workers = Workers("a")
    async with reward_by(workers) as (reward, pool):
        first = await reward.rate_next(group()[0])
        workers.revisions = ["b", "b", "a"]
        ratings = [first, *(await asyncio.gather(*map(reward.rate_next, group()[1:])))]
        other = await reward.rate_next(group(1)[0])
        report = pool.report()
    assert {rating.total for rating in ratings} == {1.0}
    assert other.total == 2.0
    assert report.asked_again == 0  # later members are asked of one revision at once


async def test_members_that_are_handed_on_and_asked_at_one_moment_agree() -> None:
    async with reward_by(Workers("a", "b")) as (reward, pool):
        ratings = await asyncio.gather(*map(reward.rate_next, group()))
        report = pool.report()
    assert len({rating.total for rating in ratings}) == 1
    assert report.asked_again == report.groups_asked_again == 4


@pytest.mark.parametrize("others", [["b"], ["b", "c"]], ids=" and ".join)
@pytest.mark.parametrize("hedge", [True, False])
async def test_a_member_whose_groups_revision_is_gone_is_unscored_where_ratings_are_handed_on(
    others: list[str], hedge: bool
) -> None:
    workers = Workers("a")
    async with reward_by(workers, on_failure="skip", timeout=30, hedge=hedge) as (reward, _):
        await reward.rate_next(group()[0])
        workers.revisions = others
        late = await reward.rate_next(group()[1])
    assert late.total is None
    assert isinstance(late.error, RevisionGoneError)
    assert late.error.fault == "infra"


async def test_the_key_lets_handed_on_ratings_differ() -> None:
    workers = Workers("a", "b")
    async with reward_by(workers, one_revision=False) as (reward, _):
        ratings = [await reward.rate_next(episode) for episode in group()]
        settled = await reward.settled(group(), ratings)
    assert {rating.total for rating in settled} == {1.0, 2.0}
    assert {rating.revisions[POOL] for rating in settled} == {("a",), ("b",)}  # who scored is said all the same


@pytest.mark.parametrize(("one_revision", "scores"), [(True, 1), (False, 2)])
async def test_a_call_of_the_front_door_gives_each_group_one_scorer(one_revision: bool, scores: int) -> None:
    async with served(Workers("a", "b")) as url:
        with Reward({"url": url, "type": "Function"}, batch=1, one_revision=one_revision) as reward:
            rows = [{"prompt": "p", "response": str(number), "group": number // 4} for number in range(8)]
            ratings = await asyncio.to_thread(reward.rate, rows)
            totals = await asyncio.to_thread(reward, ["p"] * 8, [str(number) for number in range(8)])
    assert [len({rating.total for rating in group}) for group in (ratings[:4], ratings[4:])] == [scores] * 2
    assert len(set(totals)) == scores


async def test_rows_of_a_stream_are_scored_by_the_revision_of_their_groups_first() -> None:
    async with served(Workers("a", "b")) as url:
        with Reward({"url": url, "type": "Function"}, batch=1) as reward:
            rows = [{"prompt": "p", "response": str(number), "group": number // 4} for number in range(8)]
            rated = dict([item async for item in reward.stream(rows)])
    assert [len({rated[row].total for row in range(start, start + 4)}) for start in (0, 4)] == [1, 1]


def test_only_so_many_groups_are_remembered() -> None:
    claims = Claims(most=2)
    for number in range(3):
        claims.enter(number, Answered({POOL: A}))
    assert [dict(claims.for_group(number)) for number in range(3)] == [{}, {POOL: "a"}, {POOL: "a"}]


class Scorer:
    """A part that asks a pool of two revisions, the next one in turn unless one is wanted."""

    def __init__(self, pool: str, revisions: str, scores: Mapping[str, float]) -> None:
        self.pool = pool
        self.revisions = iter(revisions)
        self.scores = scores

    async def score(self, episode: Episode) -> PartScore:
        noted = current()
        assert noted is not None
        await asyncio.sleep(0)
        revision = noted.wanted.get(self.pool) or next(self.revisions)
        noted.answered(self.pool, Signature(revision, None))
        return PartScore(self.scores.get(f"{revision} {episode.response}", self.scores[revision]))


async def test_a_pool_behind_a_gate_that_opens_when_it_is_asked_again_scores_by_one_revision_too() -> None:
    gate = Scorer("rl/gate", "bab", {"a": 1.0, "b": 1.0, "b poor": 0.0, "a good": 0.0})
    behind = Scorer("rl/behind", "ab", {"a": 1.0, "b": 2.0})
    spec = {"combine": "gate", "rewards": [{"pool": "rl/gate", "gate": {"at_least": 0.5}}, {"pool": "rl/behind"}]}
    parts = zip(parse_reward(spec, path="reward").parts, (gate, behind), strict=True)
    pool: Any = SimpleNamespace(one_revision=True, count_asked_again=Mock())
    pools = {"rl/gate": pool, "rl/behind": pool}
    reward = CompositeReward([OpenPart(part, "reward", scorer) for part, scorer in parts], combine="gate", pools=pools)
    poor, good, better = (Episode(prompt="p", response=one, group=0) for one in ("poor", "good", "better"))
    ratings = [*await asyncio.gather(reward.rate_next(poor), reward.rate_next(good)), await reward.rate_next(better)]
    assert [rating.revisions.get("rl/behind") for rating in ratings] == [None, ("a",), ("a",)]

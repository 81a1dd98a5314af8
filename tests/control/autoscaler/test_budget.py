"""A budget that pools share: tables of what is dealt out, and properties of every view and every order of passes."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.decide_builders import NOW

from rewardpool_api.status import ScalingDecision
from rewardpool_control.autoscaler.budget import YIELD_SECONDS, allowance, has_yielded
from rewardpool_control.autoscaler.signals import Claim


def a_claim(pool, wanted, allocated=0, *, total=4, **given):
    return Claim(pool=pool, total=total, wanted=wanted, allocated=allocated, **given)


def allowed(*claims):
    """What each pool takes by the same view: pool -> replicas."""
    return {claim.pool: allowance(claim, others_of(claim, claims)).replicas for claim in claims}


def others_of(mine, claims):
    return tuple(claim for claim in claims if claim.pool != mine.pool)


def test_a_pool_alone_gets_what_it_wants():
    assert allowance(a_claim("a", 3), ()).replicas == 3


def test_a_pool_alone_gets_no_more_than_the_budget():
    left = allowance(a_claim("a", 9), ())
    assert (left.replicas, left.reason) == (4, "the budget has 4 replicas")


def test_the_smallest_number_holds_where_pools_disagree():
    assert allowed(a_claim("a", 9, total=4), a_claim("b", 0, total=2)) == {"a": 2, "b": 0}


def test_free_replicas_go_to_the_higher_priority_first():
    assert allowed(a_claim("a", 3), a_claim("b", 3, priority=1)) == {"a": 1, "b": 3}


def test_free_replicas_go_to_the_pool_for_which_a_trainer_waits_before_any_priority():
    assert allowed(a_claim("a", 3, priority=9), a_claim("b", 3, stalled=True)) == {"a": 1, "b": 3}


def test_free_replicas_of_equals_go_by_name():
    assert allowed(a_claim("b", 3), a_claim("a", 3)) == {"a": 3, "b": 1}


def test_every_minimum_comes_before_what_else_a_higher_rank_wants():
    assert allowed(a_claim("a", 2, minimum=1), a_claim("b", 9, stalled=True, priority=9)) == {"a": 1, "b": 3}


def test_minima_that_do_not_all_fit_go_by_rank():
    minima = [a_claim("a", 3, minimum=3), a_claim("b", 3, minimum=3, priority=1)]
    assert allowed(*minima) == {"a": 1, "b": 3}


def test_equals_keep_what_they_have():
    assert allowed(a_claim("a", 4, 1), a_claim("b", 4, 3)) == {"a": 1, "b": 3}


def test_a_pool_that_is_outranked_shrinks_and_the_other_waits_until_it_has():
    assert allowed(a_claim("a", 4, 4), a_claim("b", 3, 0, priority=1)) == {"a": 1, "b": 0}
    assert allowed(a_claim("a", 4, 1), a_claim("b", 3, 0, priority=1)) == {"a": 1, "b": 3}


def test_what_becomes_free_bit_by_bit_goes_to_one_of_those_who_wait_for_it():
    waiting = [a_claim("a", 4, 3), a_claim("b", 2, 0, priority=2), a_claim("c", 2, 0, priority=1)]
    assert allowed(*waiting) == {"a": 0, "b": 1, "c": 0}


def test_what_is_ending_at_a_pool_is_no_room_for_anybody():
    ending = a_claim("a", 4, 4, ending=2)
    assert allowed(ending, a_claim("b", 1, 0)) == {"a": 2, "b": 0}


def test_a_pool_that_gave_replicas_up_does_not_take_them_back_at_once():
    loser, winner = a_claim("a", 4, 1, priority=1, yielded=True), a_claim("b", 3, 3)
    assert allowed(loser, winner) == {"a": 1, "b": 3}
    assert allowed(replace(loser, yielded=False), winner) == {"a": 1, "b": 0}


def test_a_pool_that_gave_replicas_up_takes_what_nobody_else_wants():
    assert allowed(a_claim("a", 4, 1, yielded=True), a_claim("b", 1, 1)) == {"a": 3, "b": 1}


def test_the_reason_names_who_has_the_rest():
    holders = [a_claim("b", 8, 8, total=16, stalled=True), a_claim("c", 6, 6, total=16, priority=1)]
    left = allowance(a_claim("a", 5, 2, total=16), holders)
    words = "the budget has 16 replicas: b, for which a trainer waits, has 8, c has 6"
    assert (left.replicas, left.reason, left.taken_by) == (2, words, ("b", "c"))


def test_the_reason_names_no_pool_of_another_namespace():
    left = allowance(a_claim("team-a/rm", 3, 1), [a_claim("team-a/other", 1, 1), a_claim("team-b/secret", 2, 2)])
    assert left.reason == "the budget has 4 replicas: a pool of team-b has 2, other has 1"


def test_the_reason_names_who_is_to_have_what_is_given_up():
    left = allowance(a_claim("a", 4, 4), [a_claim("b", 3, 0, stalled=True)])
    words = "the budget has 4 replicas: b, for which a trainer waits, is to have 3"
    assert (left.replicas, left.reason, left.taken_by) == (1, words, ("b",))


def test_the_reason_says_what_is_to_come():
    left = allowance(a_claim("a", 3, 0, stalled=True), [a_claim("b", 4, 4)])
    assert left.reason == "the budget has 4 replicas: b has 4; 3 of them are to come here"


def test_the_reason_sums_up_many_pools():
    holders = [a_claim(name, 1, 1, total=5) for name in "bcdef"]
    assert allowance(a_claim("a", 1, 0, total=5), holders).reason == (
        "the budget has 5 replicas: b has 1, c has 1, d has 1, 2 more pools have 2"
    )


def decisions(*sizes, limit="Budget", seconds_ago=5):
    *before, last = sizes
    then, lately = NOW - timedelta(hours=1), NOW - timedelta(seconds=seconds_ago)
    history = [ScalingDecision(time=then, replicas=size, reason="") for size in before]
    return [*history, ScalingDecision(time=lately, replicas=last, reason="", limit=limit)]


@pytest.mark.parametrize(
    ("history", "yielded"),
    [
        (decisions(4, 2), True),
        (decisions(4, 2, seconds_ago=YIELD_SECONDS + 1), False),
        (decisions(2, 3), False),
        (decisions(4, 2, limit=None), False),
        (decisions(4), False),
        ([], False),
    ],
)
def test_a_pool_has_yielded_when_the_budget_lately_made_it_smaller(history, yielded):
    assert has_yielded(history, now=NOW) is yielded


@st.composite
def budgets(draw, *, settled=False):
    """A budget's total, and what its pools claim; settled: nothing is leaving, and they hold no more than it."""
    total = draw(st.integers(1, 12))
    left, claims = total, []
    for number in range(draw(st.integers(1, 5))):
        allocated = draw(st.integers(0, left if settled else 12))
        left -= allocated if settled else 0
        wanted = draw(st.integers(0, 12))
        claim = Claim(
            pool=f"p{number}",
            total=total,
            priority=draw(st.integers(0, 2)),
            wanted=wanted,
            minimum=draw(st.integers(0, wanted)),
            allocated=allocated,
            ending=0 if settled else draw(st.integers(0, allocated)),
            stalled=draw(st.booleans()),
            yielded=draw(st.booleans()),
        )
        claims.append(claim)
    return total, claims


@given(budgets())
def test_all_pools_together_never_take_more_than_the_budget(budget):
    total, claims = budget
    assert sum(allowed(*claims).values()) <= total


@given(budgets())
def test_no_pool_takes_more_than_it_wants_or_less_than_nothing(budget):
    _, claims = budget
    assert all(0 <= allowed(*claims)[claim.pool] <= claim.wanted for claim in claims)


@given(budgets())
def test_what_is_there_and_what_is_decided_never_grows_beyond_the_budget(budget):
    total, claims = budget
    replicas = allowed(*claims)
    after = sum(max(claim.allocated, replicas[claim.pool] + claim.ending) for claim in claims)
    assert after <= max(total, sum(claim.allocated for claim in claims))


@given(budgets())
def test_nobody_is_left_below_its_minimum_when_all_minima_fit(budget):
    total, claims = budget
    assume(sum(claim.minimum for claim in claims) <= total)
    final = settled(claims)
    assert all(final[claim.pool] >= claim.minimum for claim in claims)


def test_a_trainer_that_waits_for_several_pools_gets_a_replica_of_each():
    waits = [a_claim("teacher", 4, 2, stalled=True), a_claim("judge", 4, 2, stalled=True)]
    assert allowed(*waits, a_claim("tests", 2, stalled=True)) == {"teacher": 1, "judge": 2, "tests": 0}
    given_back = [a_claim("teacher", 4, 1, stalled=True), a_claim("judge", 4, 2, stalled=True)]
    assert allowed(*given_back, a_claim("tests", 2, stalled=True)) == {"teacher": 1, "judge": 2, "tests": 1}


def test_where_there_is_not_one_replica_for_each_none_changes_hands():
    claims = [a_claim(pool, 1, held, total=2, stalled=True) for pool, held in (("a", 0), ("b", 1), ("c", 1))]
    assert allowed(*claims) == {"a": 0, "b": 1, "c": 1}


@given(budgets(), st.integers(1, 12))
def test_who_wants_more_never_gets_less(budget, more):
    _, (mine, *others) = budget
    greedier = replace(mine, wanted=mine.wanted + more)
    assert allowance(greedier, others).replicas >= allowance(mine, others).replicas


@given(budgets())
def test_nobody_gets_more_by_claiming_a_lower_rank(budget):
    _, (mine, *others) = budget
    higher = replace(mine, priority=mine.priority + 1)
    assert allowance(higher, others).replicas >= allowance(mine, others).replicas


@given(budgets(settled=True))
def test_the_higher_rank_goes_without_only_when_all_lower_ones_are_at_their_minimum(budget):
    _, claims = budget
    claims = [replace(claim, yielded=False) for claim in claims]
    final = settled(claims)
    rank = {claim.pool: (claim.stalled, claim.priority) for claim in claims}
    for short in (claim for claim in claims if final[claim.pool] < claim.wanted):
        lower = [claim for claim in claims if rank[claim.pool] < rank[short.pool]]
        assert all(final[claim.pool] <= claim.minimum for claim in lower)


@given(budgets(settled=True))
def test_the_pools_come_to_rest(budget):
    _, claims = budget
    final = settled(claims)
    rested = [replace(claim, allocated=final[claim.pool]) for claim in claims]
    assert allowed(*rested) == final


@given(budgets(settled=True), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12), st.booleans()), max_size=30))
def test_passes_in_any_order_with_flipping_claims_never_exceed_the_budget(budget, steps):
    """One pool after the other decides, as one operator's passes do; what it gives up is there until a later step."""
    total, claims = budget
    pods = {claim.pool: claim.allocated for claim in claims}
    sizes = dict(pods)
    for number, wanted, stalled in steps:
        number %= len(claims)
        claims[number] = replace(
            claims[number], wanted=wanted, minimum=min(wanted, claims[number].minimum), stalled=stalled
        )
        view = [replace(claim, allocated=max(pods[claim.pool], sizes[claim.pool])) for claim in claims]
        mine = view[number]
        sizes[mine.pool] = allowance(mine, others_of(mine, view)).replicas
        pods[mine.pool] = max(pods[mine.pool], sizes[mine.pool])
        assert sum(pods.values()) <= total
        ended = view[(number + 1) % len(view)].pool
        pods[ended] = sizes[ended]


def settled(claims):
    """The sizes once everything that was given up is gone and taken."""
    sizes = {claim.pool: claim.allocated - claim.ending for claim in claims}
    for _ in range(2 * len(claims) + 2):
        view = [replace(claim, allocated=sizes[claim.pool], ending=0) for claim in claims]
        sizes = allowed(*view)
    return sizes


def test_a_stall_that_comes_and_goes_every_second_moves_replicas_once_a_minute():
    """Two pools want everything, and their trainers wait in turns."""
    sizes, taken = {"a": 4, "b": 0}, {"a": -YIELD_SECONDS, "b": -YIELD_SECONDS}
    moves = 0
    for second in range(600):
        claims = [
            a_claim(pool, 4, sizes[pool], stalled=second % 2 == turn, yielded=second - taken[pool] < YIELD_SECONDS)
            for turn, pool in enumerate("ba")
        ]
        for pool, size in allowed(*claims).items():
            if size < sizes[pool]:
                taken[pool] = second
                moves += 1
            sizes[pool] = size
    assert 9 <= moves <= 11

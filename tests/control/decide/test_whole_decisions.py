"""What holds of all sequences of decisions, whatever happens in between."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.simulated_fleet import ALLOWED, DEADLINE_SECONDS, Health, SimulatedFleet

GOOD, SILENT, ODD = Health(), Health(answers=False), Health(score=1.0 + 2 * ALLOWED)
SETTLE_TICKS = 15
"""For one worker to be drained and replaced."""

choices = st.integers(0, 9)
happenings = st.one_of(
    st.tuples(st.just("change"), st.sampled_from([GOOD, SILENT, ODD])),
    st.tuples(st.sampled_from(["crash", "delete", "doom"]), choices),
    st.tuples(st.just("replicas"), st.integers(0, 4)),
    st.tuples(st.just("paused"), st.booleans()),
    st.tuples(st.just("ticks"), st.integers(1, DEADLINE_SECONDS + 5)),
)


@st.composite
def fleets(draw, strategies=("Surge", "Replace", "Auto"), parity=None):
    strategy = draw(st.sampled_from(strategies))
    # Surge asks for room; without it a rollout fails, and should.
    room = None if strategy == "Surge" or draw(st.booleans()) else 4
    fleet = SimulatedFleet(
        strategy=strategy,
        replicas=draw(st.integers(1, 4)),
        room=room,
        parity=draw(st.booleans()) if parity is None else parity,
        parked=draw(st.integers(0, 2)) if room is None else 0,
    )
    run(fleet, SETTLE_TICKS)
    return fleet


def run(fleet, ticks, check=lambda fleet: None):
    for _ in range(ticks):
        check(fleet)
        fleet.tick()


def live_through(fleet, story, check=lambda fleet: None):
    for what, value in story:
        match what:
            case "ticks":
                run(fleet, value, check)
            case "replicas":
                fleet.replicas = value
            case "paused":
                fleet.rollout["paused"] = value
            case "change":
                fleet.change(value)
            case _:
                getattr(fleet, what)(value)
        run(fleet, 1, check)


def settled(fleet):
    """The fleet, with a healthy newest revision that nothing disturbs any more."""
    fleet.rollout["paused"] = False
    fleet.replicas = max(1, fleet.replicas)
    fleet.change(GOOD)
    run(fleet, 2 * SETTLE_TICKS * (fleet.replicas + 1))
    return fleet


thorough = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
stories = st.lists(happenings, max_size=12)


@thorough
@given(fleet=fleets(), story=stories)
def test_a_healthy_newest_revision_always_gets_there(fleet, story):
    live_through(fleet, story)
    settled(fleet)
    assert {worker.revision for worker in fleet.workers.values()} == {fleet.revision}
    assert len(fleet.workers) == fleet.replicas + fleet.parked
    assert fleet.serving() == len(fleet.listed) == fleet.status.replicas == fleet.replicas
    assert fleet.status.parked_replicas == fleet.parked
    assert fleet.status.rollout.stable_revision == fleet.revision
    assert fleet.status.condition("Progressing").reason == "Stable"


@thorough
@given(fleet=fleets(), story=stories)
def test_when_nothing_happens_nothing_is_written(fleet, story):
    live_through(fleet, story)
    settled(fleet)
    before = fleet.status
    plan = fleet.tick()
    assert fleet.status == before
    assert (plan.leaves, plan.drain, plan.undrain, plan.stop, plan.joins, plan.measure) == ((),) * 6
    assert plan.events == ()


@thorough
@given(fleet=fleets(), story=stories)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do_in_the_same_moment(fleet, story):
    live_through(fleet, story)
    for _ in range(4):
        fleet.decide_and_apply()
    before, sets = fleet.status, dict(fleet.sets)
    plan = fleet.decide_and_apply()
    assert (plan.leaves, plan.drain, plan.undrain, plan.stop, plan.joins, plan.events) == ((),) * 6
    assert (fleet.status, fleet.sets) == (before, sets)


def takes_no_more_than(lost):
    """Of the workers that serve, the plan of this moment takes no more away than this below what is wanted."""

    def check(fleet):
        serving, wanted = fleet.serving(), fleet.replicas
        before = set(fleet.listed)
        fleet.decide_and_apply()
        taken = before - fleet.listed
        by_plan = [
            worker
            for worker in fleet.workers.values()
            if worker.url in taken and worker.answering and not worker.deleting and worker.disruption_target is None
        ]
        assert serving - len(by_plan) >= min(wanted - lost, serving)

    return check


@thorough
@given(fleet=fleets(strategies=["Surge"]), story=stories)
def test_surge_takes_nobody_before_there_is_another(fleet, story):
    live_through(fleet, story, takes_no_more_than(0))


@thorough
@given(fleet=fleets(strategies=["Replace", "Auto"]), story=stories)
def test_replace_takes_one_at_a_time(fleet, story):
    live_through(fleet, story, takes_no_more_than(1))


@thorough
@given(fleet=fleets(parity=True), story=stories)
def test_a_revision_that_scores_otherwise_never_serves(fleet, story):
    def check(fleet):
        serving = {worker.revision for worker in fleet.workers.values() if worker.url in fleet.listed}
        assert ODD not in {fleet.health[revision] for revision in serving}

    live_through(fleet, story, check)


@thorough
@given(fleet=fleets(parity=False), replicas=st.integers(1, 4))
def test_a_broken_revision_is_rolled_back_and_all_wanted_workers_serve(fleet, replicas):
    fleet.change(SILENT)
    fleet.replicas = replicas
    run(fleet, 2 * DEADLINE_SECONDS + SETTLE_TICKS * 2)
    assert fleet.status.rollout.failed.revision == fleet.revision
    assert {worker.revision for worker in fleet.workers.values()} == {"r0"}
    assert fleet.serving() == replicas

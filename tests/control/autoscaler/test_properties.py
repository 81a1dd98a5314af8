"""What holds for every manifest, every load and every word of a trainer."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from support.autoscaler_builders import DEMAND, DRAIN_TIME, QUEUE_DEPTH, a_job, a_scaling, signals
from support.decide_builders import NOW

from rewardpool_api.demand import Demand
from rewardpool_api.status import LoadStatus, ScalingStatus
from rewardpool_control.autoscaler.recommend import recommend
from rewardpool_control.autoscaler.signals import Announcement, Start, Throughput

SECONDS = st.floats(0, 1000, allow_nan=False)
STEPS = st.none() | st.builds(
    lambda replicas, percent, period: {"replicas": replicas, "percent": percent, "periodSeconds": period},
    st.integers(1, 4),
    st.integers(1, 200),
    st.integers(1, 30),
)
SCALINGS = st.builds(
    lambda policies, minimum, more, band, window, idle, rate, up, down: a_scaling(
        *policies,
        minReplicas=minimum,
        maxReplicas=minimum + more,
        tolerancePercent=band,
        cooldownSeconds=idle,
        scaleUp={"step": up},
        scaleDown={"stabilizationWindowSeconds": window, "step": down},
        serviceRate={"initialPerReplica": rate},
    ),
    st.lists(st.sampled_from([QUEUE_DEPTH, DRAIN_TIME, DEMAND]), min_size=1, max_size=3, unique_by=str),
    st.integers(0, 3),
    st.integers(1, 9),
    st.sampled_from([0, 10, 50]),
    st.integers(0, 20),
    st.integers(0, 20),
    st.none() | st.floats(0.1, 50),
    STEPS,
    STEPS,
)
DEMANDS = st.builds(
    Demand,
    job=st.sampled_from(["a", "b"]),
    phase=st.sampled_from(["Starting", "Rollout", "Update", "Ended"]),
    samples=st.none() | st.integers(0, 10**12),
    starts_in_seconds=st.none() | SECONDS,
    spread_seconds=SECONDS,
    ends_in_seconds=st.none() | SECONDS,
    stalled=st.booleans(),
)


@st.composite
def histories(draw, *, length=25):
    """What is seen, look after look: load or none, announcements, throughputs, starts."""
    seen, at = [], 0.0
    for number in range(draw(st.integers(1, length))):
        at += draw(st.sampled_from([0.5, 1.0, 5.0, 30.0]))
        now = NOW + timedelta(seconds=at)
        announced = draw(st.lists(DEMANDS, max_size=2, unique_by=lambda demand: demand.job))
        seen.append(
            signals(
                draw(st.none() | st.integers(0, 300)),
                at=at,
                replicas=draw(st.integers(0, 12)),
                serving=draw(st.integers(0, 12)),
                throughputs=draw(
                    st.lists(
                        st.builds(
                            Throughput, worker=st.just("w"), rate=st.floats(0.01, 99), in_flight=st.integers(1, 64)
                        ),
                        max_size=2,
                    ).map(tuple)
                ),
                starts=tuple(
                    Start(worker=f"w{number}", seconds=seconds) for seconds in draw(st.lists(SECONDS, max_size=1))
                ),
                announcements=tuple(
                    Announcement(name=f"demand-rm-{demand.job}", renewed=now, seconds=15, demand=demand)
                    for demand in announced
                ),
            )
        )
    return seen


def decisions(scaling, seen):
    previous, made = None, []
    for one in seen:
        previous = recommend(scaling=scaling, signals=one, previous=previous).scaling
        made.append(previous)
    return made


@given(SCALINGS, histories())
def test_the_size_is_always_within_the_bounds(scaling, seen):
    made = decisions(scaling, seen)
    assert all(scaling.min_replicas <= one.desired <= scaling.max_replicas for one in made)


@given(SCALINGS, histories())
def test_the_size_never_falls_on_missing_metrics(scaling, seen):
    made = decisions(scaling, seen)
    sizes = pairwise(one.desired for one in made)
    assert all(after >= before for (before, after), look in zip(sizes, seen[1:], strict=True) if look.load is None)


@given(SCALINGS, histories(length=8), st.integers(0, 300), st.integers(0, 12), st.lists(SECONDS, max_size=2))
def test_what_only_some_routers_say_grows_the_size_as_far_as_it_goes_and_never_shrinks_it(
    scaling, seen, known, serving, renewals
):
    previous = decisions(scaling, seen)[-1]
    jobs = tuple(a_job(job=f"job-{number}", samples=int(10 * at)) for number, at in enumerate(renewals))
    look = signals(
        known, at=(seen[-1].now - NOW).total_seconds() + 1, serving=serving, announcements=jobs, partial=True
    )
    said = recommend(scaling=scaling, signals=look, previous=previous).scaling.desired
    by_all = recommend(scaling=scaling, signals=replace(look, partial=False), previous=previous).scaling.desired
    assert previous.desired <= said <= max(previous.desired, by_all)


@given(SCALINGS, histories())
@settings(max_examples=50)
def test_a_restarted_operator_decides_the_same(scaling, seen):
    """The state goes through JSON between every two decisions, as it does in the status."""
    kept = fresh = None
    for one in seen:
        kept = recommend(scaling=scaling, signals=one, previous=kept).scaling
        stored = fresh and ScalingStatus.model_validate_json(fresh.model_dump_json(by_alias=True))
        fresh = recommend(scaling=scaling, signals=one, previous=stored).scaling
        assert fresh == kept


@given(SCALINGS, st.integers(0, 300), st.integers(0, 10), st.floats(0.5, 20))
def test_constant_load_never_makes_it_turn_round(scaling, requests, start, every):
    seen = [signals(requests, at=number * every, replicas=start, serving=start) for number in range(40)]
    sizes = [start, *(one.desired for one in decisions(scaling, seen))]
    assert sizes in (sorted(sizes), sorted(sizes, reverse=True))


@given(SCALINGS, histories(length=8), st.integers(0, 300), st.integers(0, 300))
def test_more_requests_never_want_fewer_replicas(scaling, seen, requests, more):
    previous = decisions(scaling, seen)[-1]
    last = seen[-1]

    def size(count):
        look = signals(count, at=(last.now - NOW).total_seconds() + 1, serving=last.serving)
        return recommend(scaling=scaling, signals=look, previous=previous).scaling.desired

    assert size(requests) <= size(requests + more)


@given(SCALINGS, histories(length=8), DEMANDS, st.integers(0, 10**6), st.integers(0, 10**6))
def test_more_announced_samples_never_want_fewer_replicas(scaling, seen, demand, samples, more):
    previous = decisions(scaling, seen)[-1]
    now = seen[-1].now + timedelta(seconds=1)

    def size(count):
        said = demand.model_copy(update={"samples": count})
        announcement = Announcement(name="demand-rm-a", renewed=now, seconds=15, demand=said)
        look = signals(3, at=(now - NOW).total_seconds(), announcements=(announcement,))
        return recommend(scaling=scaling, signals=look, previous=previous).scaling.desired

    assert size(samples) <= size(samples + more)


def test_one_announced_sample_does_not_take_away_what_requests_held():
    scaling = a_scaling(
        DRAIN_TIME, DEMAND, maxReplicas=2, tolerancePercent=50, scaleDown={"stabilizationWindowSeconds": 0}
    )
    held = recommend(scaling=scaling, signals=signals(None, replicas=2), previous=None).scaling

    def size(samples):
        look = signals(3, at=1, announcements=(a_job("Starting", samples=samples),))
        return recommend(scaling=scaling, signals=look, previous=held).scaling.desired

    assert [size(0), size(1), size(2)] == [2, 2, 2]


@given(st.lists(st.none() | st.integers(0, 200), min_size=1, max_size=60))
def test_the_size_is_the_largest_ask_of_the_window(loads):
    """Against the plain definition, computed over the whole history."""
    window = 7
    scaling = a_scaling(scaleDown={"stabilizationWindowSeconds": window})
    sizes = [one.desired for one in decisions(scaling, [signals(load, at=at) for at, load in enumerate(loads)])]
    wanted = [None if load is None else max(1, min(8, -(-load // 10))) for load in loads]
    for now, size in enumerate(sizes):
        if wanted[now] is None:
            continue
        # An ask holds until the next known one replaces it.
        held = [
            wanted[then]
            for then in range(now + 1)
            if wanted[then] is not None
            and next((later for later in range(then + 1, now + 1) if wanted[later] is not None), now) > now - window
        ]
        assert size == max(held)


@given(SCALINGS, histories())
def test_waiting_requests_count_like_those_in_flight(scaling, seen):
    moved = [one if one.load is None else replace(one, load=LoadStatus(waiting=one.load.in_flight)) for one in seen]
    assert [one.desired for one in decisions(scaling, moved)] == [one.desired for one in decisions(scaling, seen)]


def of_one_length(look, tokens):
    """The same look where every job says that each of its samples has so many tokens."""
    said = [
        replace(
            one,
            demand=one.demand.model_copy(
                update={
                    "tokens_per_sample": float(tokens),
                    "tokens": None if one.demand.samples is None else tokens * one.demand.samples,
                }
            ),
        )
        for one in look.announcements
    ]
    return replace(look, announcements=tuple(said))


# Rates are kept with three digits, which a power of ten leaves as they are.
@given(SCALINGS, histories(), st.sampled_from([1, 10, 1000, 100_000]))
def test_with_samples_of_one_length_tokens_decide_what_samples_decide(scaling, seen, tokens):
    with_tokens = decisions(scaling, [of_one_length(look, tokens) for look in seen])
    assert [one.desired for one in with_tokens] == [one.desired for one in decisions(scaling, seen)]


@given(SCALINGS, histories(length=8), DEMANDS, st.integers(10, 10**6), st.integers(0, 10**6))
def test_more_announced_tokens_never_want_fewer_replicas(scaling, seen, demand, tokens, more):
    previous = decisions(scaling, [of_one_length(look, 100) for look in seen])[-1]
    now = seen[-1].now + timedelta(seconds=1)

    def size(count):
        said = demand.model_copy(update={"samples": 10, "tokens": count})
        announcement = Announcement(name="demand-rm-a", renewed=now, seconds=15, demand=said)
        look = signals(3, at=(now - NOW).total_seconds(), announcements=(announcement,))
        return recommend(scaling=scaling, signals=look, previous=previous).scaling.desired

    assert size(tokens) <= size(tokens + more)

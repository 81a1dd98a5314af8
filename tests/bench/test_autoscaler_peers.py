"""Each peer against the computed step response and what was measured of the real one (its rules: test_peer_rules.py).

Tables of docs/results/peers.md: "computed" is one replica at first, 64 at most, load from one to eight times the target
at 0 s; "measured" is a target of 4, up to 8 pods that were ready after 2 to 3 s.
"""

import pytest
from autoscaler.peers import PEERS, PeerSettings
from autoscaler.peers.aibrix import AibrixApa, AibrixKpa
from autoscaler.peers.hpa import Hpa
from autoscaler.peers.keda import Keda
from autoscaler.peers.knative import KnativeKpa
from autoscaler.peers.kubeai import KubeAi
from hypothesis import given
from hypothesis import strategies as st
from support.stand_in_fleet import changes

TARGET = 4


def settings(least=1, most=64):
    return PeerSettings(target_per_replica=TARGET, min_replicas=least, max_replicas=most)


def step(now):
    return 8 * TARGET if now >= 0 else TARGET


def first(sizes, replicas):
    """When at least so many were wanted."""
    return next((at for at, size in sizes if size >= replicas), None)


@pytest.mark.parametrize("ready_after", [0, 180])
@pytest.mark.parametrize(
    ("make", "seconds", "peak"),
    [
        (KubeAi, 510, 8),
        (Hpa, 15, 8),
        (Keda, 15, 8),
        # The table has 4 s: three samples, one of them at 0 s. Knative averages six samples of a second each.
        (lambda given: KnativeKpa(given, utilization=1.0), 6, 8),
        # At 70 % of the target, as shipped: 12 replicas for what 8 would hold.
        (KnativeKpa, 4, 12),
    ],
)
def test_the_step_response_of_those_that_look_at_the_total(make, seconds, peak, ready_after):
    start = 2 if make is KnativeKpa else 1
    sizes = changes(make(settings()), step, since=-720, until=900, start=start, ready_after=ready_after)
    assert (first(sizes, 8), max(size for _, size in sizes)) == (seconds, peak)


@pytest.mark.parametrize(
    ("make", "ready_after", "seconds", "peak"),
    [(AibrixApa, 0, 20, 64), (AibrixApa, 180, 20, 64), (AibrixKpa, 0, None, 5), (AibrixKpa, 180, 20, 8)],
)
def test_the_step_response_of_aibrix_with_one_reconcile_a_tick(make, ready_after, seconds, peak):
    policy = make(settings(), reconciles_on_status=False)
    sizes = changes(policy, step, until=900, ready_after=ready_after)
    assert (first(sizes, 8), max(size for _, size in sizes)) == (seconds, peak)
    if make is AibrixKpa:
        assert sizes[-1][1] <= 4, "settles at half the load and less"


def test_aibrix_apa_runs_to_the_maximum_within_a_tick_because_its_own_status_wakes_it():
    assert changes(AibrixApa(settings()), step, until=10) == [(0, 64)]


def rectangle(seconds):
    """One times the target, then eight times it from 0 s on for so long, then nothing."""
    return lambda now: 0 if now >= seconds else step(now)


@pytest.mark.parametrize("phase", [3, 14])
def test_hpa_as_measured_doubles_within_27_s_and_drops_to_one_in_one_step_after_the_window(phase):
    sizes = changes(Hpa(settings(most=8)), rectangle(600), since=-60 + phase, until=1200, ready_after=3)
    assert [size for _, size in sizes] == [4, 8, 1]
    assert 15 <= sizes[1][0] <= 30, "measured: 21 to 27 s"
    assert 285 <= sizes[2][0] - 600 <= 300, "measured: 293 to 297 s"


def test_knative_as_measured_peaks_in_seconds_and_is_at_zero_soon_after_its_window():
    sizes = changes(KnativeKpa(settings(0, 8)), rectangle(300), since=-100, until=600, start=2, ready_after=3)
    down = {size: at - 300 for at, size in sizes if at >= 300}
    assert first(sizes, 8) == pytest.approx(6, abs=2), "measured: 5.9 to 7.3 s"
    assert down[1] == pytest.approx(56, abs=2)
    assert down[0] == pytest.approx(65, abs=2)


def test_kubeai_as_measured_takes_minutes_either_way():
    sizes = changes(KubeAi(settings(0, 8)), rectangle(1200), since=-600, until=2000, ready_after=3)
    down = {size: at - 1200 for at, size in sizes if at >= 1200}
    assert first(sizes, 8) == pytest.approx(518.6, abs=10), "within a tick"
    # Measured when pods were gone, 19 and 29 s later than they are no longer wanted here.
    assert down[7] == pytest.approx(119, abs=20)
    assert down[0] == pytest.approx(649, abs=30)


def test_aibrix_apa_as_measured_asks_for_eight_times_as_many_for_three_times_the_load():
    def triple(now):
        return 3 * TARGET if now >= 0 else TARGET

    assert changes(AibrixApa(settings(most=8)), triple, since=-120, until=10, ready_after=3) == [(0, 8)]


def test_aibrix_apa_as_measured_falls_to_one_in_one_step():
    sizes = changes(AibrixApa(settings(most=8)), rectangle(240), since=-30, until=300, ready_after=3)
    assert [size for _, size in sizes] == [8, 1]
    assert sizes[0][0] <= 10, "measured: 1.1 s and 9.8 s"
    assert sizes[1][0] - 240 == pytest.approx(18, abs=5)


def test_aibrix_kpa_as_measured_never_wants_eight_and_shrinks_under_full_load():
    sizes = changes(AibrixKpa(settings(most=8)), step, since=-20, until=600)
    assert [size for _, size in sizes] == [4, 3], "measured: peaks at 4"


LOADS = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 120)), min_size=1, max_size=12)


@pytest.mark.parametrize("name", PEERS)
@given(loads=LOADS, least=st.integers(0, 3), ready_after=st.sampled_from([0, 7, 90]))
def test_every_peer_stays_within_the_bounds_and_repeats_itself(name, loads, least, ready_after):
    def load(now):
        for requests, seconds in loads:
            now -= seconds
            if now < 0:
                return requests
        return loads[-1][0]

    bounds = settings(least, 16)
    until = sum(seconds for _, seconds in loads)
    runs = [changes(PEERS[name](bounds), load, until=until, start=max(1, least), ready_after=ready_after) for _ in "ab"]
    assert runs[0] == runs[1]
    assert all(least <= size <= 16 for _, size in runs[0])


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_has_a_period_and_a_name_of_its_own(name):
    policy = PEERS[name](settings())
    assert policy.period_seconds > 0
    assert [PEERS[other](settings()).name for other in PEERS].count(policy.name) == 1


@pytest.mark.parametrize(
    "values",
    [
        {"target_per_replica": 0},
        {"target_per_replica": float("nan")},
        {"min_replicas": -1},
        {"min_replicas": 9},
        {"min_replicas": 0, "max_replicas": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(values):
    with pytest.raises(ValueError, match="give"):
        PeerSettings(**{"target_per_replica": 1, "min_replicas": 1, "max_replicas": 8} | values)

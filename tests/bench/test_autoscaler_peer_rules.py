"""Each peer's rules one by one: the cases its project publishes, and what its source says."""

from itertools import pairwise

import pytest
from autoscaler.peers import PeerSettings
from autoscaler.peers.aibrix import AibrixApa, AibrixKpa
from autoscaler.peers.hpa import Hpa
from autoscaler.peers.keda import Keda
from autoscaler.peers.knative import KnativeKpa, Scaler
from autoscaler.peers.kubeai import KubeAi
from support.stand_in_fleet import a_view, changes

TARGET = 4


def settings(least=1, most=64):
    return PeerSettings(target_per_replica=TARGET, min_replicas=least, max_replicas=most)


@pytest.mark.parametrize(
    ("requests", "desired", "wanted"),
    [
        pytest.param(2 * TARGET * 4, 4, 8, id="twice the target doubles it, as documented"),
        pytest.param(TARGET * 4 + 1, 4, 4, id="within the tolerance of a tenth"),
        pytest.param(TARGET * 4 + 2, 4, 5, id="beyond the tolerance"),
        pytest.param(1000, 1, 4, id="at most 4 from 1"),
        pytest.param(1000, 10, 20, id="at most twice as many"),
        pytest.param(1000, 100, 64, id="not above the maximum"),
        pytest.param(0, 0, 1, id="an HPA cannot be at zero"),
    ],
)
def test_hpa_at_its_first_sync(requests, desired, wanted):
    assert Hpa(settings()).decide(a_view(requests=requests, desired=desired)) == wanted


def test_hpa_halves_at_half_the_target_once_the_window_is_over():
    sizes = changes(Hpa(settings()), lambda now: 2 * TARGET, start=4, until=330)
    assert sizes == [(300, 2)]


def test_hpa_does_not_take_starting_pods_for_missing_load():
    policy = Hpa(settings())
    assert policy.decide(a_view(requests=32, desired=8, ready=1)) == 8


def test_keda_leaves_zero_at_a_poll_and_grows_by_the_hpa_after_it():
    sizes = changes(Keda(settings(least=0)), lambda now: 8 * TARGET if now > 0 else 0, start=0, until=100)
    assert sizes == [(30, 1), (45, 4), (60, 8)]


def test_keda_goes_to_zero_300_s_after_the_last_poll_with_load():
    sizes = changes(Keda(settings(least=0)), lambda now: TARGET if now < 100 else 0, until=500)
    assert sizes == [(390, 0)]


def test_keda_goes_to_zero_at_once_without_a_poll_that_ever_saw_load():
    assert changes(Keda(settings(least=0)), lambda now: 0, until=60) == [(0, 0)]


def test_keda_with_a_minimum_never_goes_to_zero():
    assert changes(Keda(settings(least=2)), lambda now: 0, start=2, until=900) == []


def test_knative_panics_and_calms_down_after_a_slow_increase_as_in_its_own_test():
    scaler = Scaler(target=1, ready=0, now=0)
    assert scaler.scale(now=0, ready=10, stable=11, panic=25) == 25
    assert scaler.scale(now=30, ready=40, stable=30, panic=41) == 41
    assert scaler.scale(now=62, ready=55, stable=50, panic=56) == 50


def test_knative_panic_lasts_longer_with_a_second_surge_as_in_its_own_test():
    scaler = Scaler(target=1, ready=0, now=0)
    assert scaler.scale(now=0, ready=10, stable=11, panic=25) == 25
    assert scaler.scale(now=30, ready=40, stable=30, panic=80) == 80
    assert scaler.scale(now=89, ready=80, stable=10, panic=10) == 80
    assert scaler.scale(now=91, ready=80, stable=10, panic=10) == 40


def test_knative_follows_an_exponential_rise_as_in_its_own_test():
    scaler = Scaler(target=1, ready=0, now=0)
    sizes = [scaler.scale(now=now, ready=6**now, stable=6 ** (now + 1), panic=6 ** (now + 1)) for now in range(4)]
    assert sizes == [6, 36, 216, 1296]


@pytest.mark.parametrize(("panic", "wanted"), [(38, 5), (39, 20), (42, 21)])
def test_knative_panics_from_twice_of_what_the_ready_pods_hold(panic, wanted):
    assert Scaler(target=2, ready=0, now=0).scale(now=0, ready=10, stable=10, panic=panic) == wanted


def test_knative_after_a_restart_keeps_the_size_for_a_stable_window():
    sizes = changes(KnativeKpa(settings(least=1)), lambda now: 1, start=20, until=70)
    assert sizes[0] == (62, 10)


def test_knative_starts_from_zero_at_once_and_in_panic():
    sizes = changes(KnativeKpa(settings(least=0)), lambda now: 28 if now >= 3 else 0, start=0, until=10, ready_after=60)
    assert sizes == [(3, 10)]


def test_knative_sees_a_start_through_although_the_requests_are_gone():
    load = {3: 1, 4: 1}
    sizes = changes(KnativeKpa(settings(0)), lambda now: load.get(now, 0), start=0, until=250, ready_after=100)
    assert sizes[0] == (3, 1)
    assert sizes[1][0] >= 3 + 100 + 60
    assert sizes[1][1] == 0


def test_knative_waits_for_the_grace_period_where_the_activator_was_out_of_the_way():
    large = PeerSettings(target_per_replica=300, min_replicas=0, max_replicas=8)
    sizes = changes(KnativeKpa(large), lambda now: 5 if now < 100 else 0, until=300)
    assert sizes == [(160 + 30, 0)]


def test_kubeai_leaves_zero_as_soon_as_the_proxy_holds_a_request():
    assert changes(KubeAi(settings(0)), lambda now: 1 if now >= 13 else 0, start=0, until=30) == [(13, 1)]


def test_kubeai_shrinks_at_the_fourth_tick_that_wants_less_and_then_at_each():
    assert changes(KubeAi(settings(0)), lambda now: 0, start=5, until=60) == [(30, 0)]
    sizes = changes(KubeAi(settings()), lambda now: 60 * TARGET if now < 600 else 0, until=1300)
    down = [at for at, _ in sizes if at >= 600]
    assert down[0] == 600 + 30
    assert {after - before for before, after in pairwise(down)} == {10}


def test_kubeai_grows_by_the_mean_of_ten_minutes():
    sizes = changes(KubeAi(settings()), lambda now: 60 * TARGET if now == 0 else 0, until=700)
    assert sizes == [], "one sample of sixty times the target is worth one replica"


def test_aibrix_kpa_scales_down_at_twice_the_target():
    """Four pods with twice the target each: two times the target is taken for two pods."""
    policy = AibrixKpa(settings(), reconciles_on_status=False)
    assert policy.decide(a_view(requests=4 * 2 * TARGET, desired=4)) == 2


def test_aibrix_grows_while_pods_start():
    policy = AibrixApa(settings(), reconciles_on_status=False)
    sizes = changes(policy, lambda now: 2 * TARGET, until=50, ready_after=300)
    assert [size for _, size in sizes] == [2, 4, 8, 16, 32], "two would do"


@pytest.mark.parametrize("make", [AibrixApa, AibrixKpa])
def test_aibrix_does_nothing_while_no_pod_answers(make):
    assert make(settings()).decide(a_view(requests=100, desired=3, ready=0)) == 3


@pytest.mark.parametrize(("mean", "wanted"), [(4.4, 10), (4.5, 12), (3.6, 10), (3.5, 9), (0.4, 5), (40, 20)])
def test_aibrix_apa_multiplies_beyond_its_tolerance_by_two_at_most(mean, wanted):
    policy = AibrixApa(settings(), reconciles_on_status=False)
    assert policy.decide(a_view(requests=int(mean * 10), desired=10)) == wanted

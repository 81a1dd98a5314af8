"""The client in a simulated world: short runs of it, and that the simulation finds a client that is broken."""

import itertools
import time
from collections.abc import Callable
from typing import Final

import pytest
from simulation.client.plan import Plan, plan_of
from simulation.client.run import simulate
from simulation.client.shrink import shortest

from rewardpool._client import answer, pool, request
from rewardpool._client.connections import http
from rewardpool._client.rules import limiter
from rewardpool._client.rules.in_work import InWork
from rewardpool_api.contract import Echo

FIXED: Final = range(0, 600, 50)
SAMPLES: Final = 300


def check(plan: Plan) -> None:
    if simulate(plan).violations:
        pytest.fail(shortest(plan), pytrace=False)


@pytest.mark.parametrize("seed", FIXED)
def test_nothing_is_wrong_whatever_happens(seed: int) -> None:
    check(plan_of(seed, samples=SAMPLES))


@pytest.mark.long
def test_nothing_is_wrong_in_a_run_that_is_new() -> None:
    seed = time.time_ns() // 10**6 % 10**9
    print(f"seed {seed}")
    check(plan_of(seed, samples=SAMPLES))


FOUND: Final = {
    "a sample in a request with older ones had used up their time": (
        plan_of(36, samples=600, faults=("worker_sends_nonsense", "another_server_at_the_address"))
    ),
    "a place was given away before the connections of the last request were closed": (
        plan_of(27, samples=1500, faults=("answers_broken_off", "all_workers_hang"))
    ),
    "a client that was cancelled while it closed left its connections open": plan_of(31099, samples=SAMPLES),
    "a judge's generation was not counted when its kept connection broke": plan_of(31178, samples=SAMPLES),
    "a sample that waited for the first score, cancelled, kept its place in the queue": plan_of(185),
    "a sample whose request with others had used up its time was sent once more": plan_of(31492),
    "a sample that one of two routers refused was sent again at each answer to another": (
        plan_of(900478, samples=1640, faults=("everything_is_slow", "all_workers_gone"))
    ),
    "a sample that had used up its time before the pool's last answer waited on for its turn": (
        plan_of(940311, samples=724, faults=("network_cut", "all_workers_gone"))
    ),
    "refusals beside an attempt did not count, so that a revision that was gone was asked for until the deadline": (
        plan_of(940131)
    ),
    "the end of a rotation changed the key of a pool that had moved": plan_of(1020289),
    "a rotation that began during another one never changed the key": plan_of(1060137),
    "a pool that moved twice was found with its first key": plan_of(1080315),
    "a pool that was found moved lost the key of a rotation that had begun meanwhile": (
        plan_of(3, samples=1000, faults=("moved_with_another_key", "key_rotated"))
    ),
}
"""What was wrong, and the run that found it."""


@pytest.mark.parametrize("plan", FOUND.values(), ids=FOUND)
def test_what_was_found_once_is_not_found_again(plan: Plan) -> None:
    check(plan)


def test_a_seeds_own_faults_named_again_are_its_own_run() -> None:
    plan = plan_of(31492)
    assert plan_of(31492, samples=plan.samples, faults=plan.faults) == plan


def test_a_seed_is_one_run_to_the_letter() -> None:
    plan = plan_of(12, samples=SAMPLES)
    assert simulate(plan).digest == simulate(plan).digest != simulate(plan_of(13, samples=SAMPLES)).digest


def without_echo(patch: pytest.MonkeyPatch) -> None:
    """The id in an answer is not looked at."""
    found = answer.signature_in
    patch.setattr(answer, "signature_in", lambda said, echo: found({**said, "request_id": echo.header}, echo))


def without_revision(patch: pytest.MonkeyPatch) -> None:
    """Any revision may answer."""
    found = answer.signature_in
    patch.setattr(answer, "signature_in", lambda said, echo: found(said, Echo(echo.header, echo.is_required)))


def without_bound(patch: pytest.MonkeyPatch) -> None:
    """A worker may fail as often as it likes."""
    patch.setattr(request.ScoreRequest, "has_failed_for_good", False)


def without_giving_back(patch: pytest.MonkeyPatch) -> None:
    """Every tenth place is kept."""
    release, number = limiter.AdaptiveLimiter.release, itertools.count(1)
    patch.setattr(limiter.AdaptiveLimiter, "release", lambda *given: next(number) % 10 == 0 or release(*given))


def with_hedges_for_all(patch: pytest.MonkeyPatch) -> None:
    """What a worker has in work is asked again."""
    patch.setattr(InWork, "verdict", lambda *_, **__: "lost")


def with_penalties_for_all(patch: pytest.MonkeyPatch) -> None:
    """Whatever failed gets the number that is the policy's own."""
    patch.setattr(pool, "action_for", lambda policy, _: getattr(policy, "policy", policy))


def without_deadline(patch: pytest.MonkeyPatch) -> None:
    """A request is never checked."""
    patch.setattr(request.ScoreRequest, "check", lambda _, now: now + 1.0)


def without_limit(patch: pytest.MonkeyPatch) -> None:
    """Places are given to more than there are places for."""
    init = limiter.AdaptiveLimiter.__init__
    patch.setattr(limiter.AdaptiveLimiter, "__init__", lambda slots, size: init(slots, 2 * size))


def without_an_end(patch: pytest.MonkeyPatch) -> None:
    """Connections stay open when the client is closed."""
    patch.setattr(http.HttpClient, "close", _nothing)


async def _nothing(_: object) -> None:
    """In place of something."""


BROKEN: Final[dict[Callable[[pytest.MonkeyPatch], None], tuple[int, str, str]]] = {
    without_echo: (3, "answers_swapped", "which is not its own"),
    without_revision: (5, "revisions_change", "revision r2 scored it, and r1 was to"),
    without_bound: (177, "worker_sends_nonsense", "of at most"),
    without_giving_back: (2, "nothing", "places are taken still"),
    without_limit: (4, "nothing", "requests were in flight at a time"),
    without_deadline: (59, "all_workers_gone", "and its timeout is 20 s"),
    without_an_end: (0, "nothing", "connections are open still"),
    with_hedges_for_all: (41, "worker_is_slow", "a worker said it had in work"),
    with_penalties_for_all: (6, "nothing", "it got the number -1.0"),
}
"""Each is found by a seed with that fault, in those words."""


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_client_is_found(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, fault, words = BROKEN[broken]
    plan = plan_of(seed, samples=SAMPLES, faults=("nothing", fault))
    assert not simulate(plan).violations
    broken(monkeypatch)
    violations = simulate(plan).violations
    assert any(words in one for one in violations), violations

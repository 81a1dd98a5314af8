"""The pace of announcing, by a clock that moves when it waits; FakeWriter stands in for an API server or a folder."""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from rewardpool._demand.announcer import LOOK_SECONDS, REFUSED_SECONDS, RENEW_SECONDS, WRITE_SECONDS, DemandAnnouncer
from rewardpool._demand.cadence import Cadence, GivenCadence
from rewardpool._demand.writers import NotWrittenError
from rewardpool_api.demand import LEASE_SECONDS, Demand

AWAY = NotWrittenError("the API server is away")
FORBIDDEN = NotWrittenError("no right to patch leases", is_refused=True)

Event = tuple[float, Callable[[Cadence, float], object]]


class FakeWriter:
    """Notes what is written when; fails where it is told to, by the number of the write."""

    def __init__(self, clock: Callable[[], float], failures: dict[int, Exception]) -> None:
        self._clock = clock
        self._failures = failures
        self.tried: list[float] = []
        self.written: list[tuple[float, Demand]] = []
        self.is_closed = False

    def __str__(self) -> str:
        return "the fake place"

    async def write(self, demand: Demand) -> None:
        number = len(self.tried)
        self.tried.append(self._clock())
        if number in self._failures:
            raise self._failures[number]
        self.written.append((self._clock(), demand))

    async def close(self) -> None:
        self.is_closed = True

    @property
    def phases(self) -> list[str]:
        return [demand.phase for _, demand in self.written]


class Job:
    """A job that does things at given seconds; time passes only while its announcer waits."""

    def __init__(
        self,
        events: Sequence[Event],
        *,
        failures: dict[int, Exception] | None = None,
        tokens_per_sample: Sequence[float | None] = (None,),
    ) -> None:
        """`tokens_per_sample` is said until the first event, and then from it on."""
        self._events = list(events)
        self.now = 0.0
        self.cadence = Cadence("job", GivenCadence(samples=8))
        self.writer = FakeWriter(lambda: self.now, failures or {})
        self.announcer = DemandAnnouncer(
            self.writer,
            lambda: self.cadence.demand(self.now).model_copy(
                update={"tokens_per_sample": tokens_per_sample[0 if len(self._events) == len(events) else -1]}
            ),
            clock=lambda: self.now,
            wait=self._wait,
            uniform=lambda least, most: most,
        )
        self.announcer.run()

    def _wait(self, seconds: float) -> None:
        until = self.now + seconds
        if not self._events or self._events[0][0] > until:
            self.now = until
            return
        self.now, happens = max(self.now, self._events[0][0]), self._events.pop(0)[1]
        happens(self.cadence, self.now)


def rollout(cadence: Cadence, at: float) -> None:
    cadence.rollout_begins(at)


def update(cadence: Cadence, at: float) -> None:
    cadence.update_begins(at)


def wait(cadence: Cadence, at: float) -> None:
    cadence.waits(at, 1)


def end(cadence: Cadence, at: float) -> None:
    cadence.ends()


def test_it_is_renewed_three_times_as_often_as_it_would_lapse() -> None:
    job = Job([(31.0, end)])
    assert job.writer.tried == [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 31.0]
    assert job.writer.phases == ["Starting"] * 7 + ["Ended"]


def test_another_phase_is_said_at_once() -> None:
    job = Job([(1.3, rollout), (3.0, update), (7.9, rollout), (9.0, end)])
    assert list(zip(job.writer.tried, job.writer.phases, strict=True)) == [
        (0.0, "Starting"),
        (1.3, "Rollout"),
        (3.0, "Update"),
        (7.9, "Rollout"),
        (9.0, "Ended"),
    ]


@pytest.mark.parametrize(
    ("tokens", "said"), [([128, 8192], [0.0, 1.3, 5.0]), ([None, 128], [0.0, 1.3, 5.0]), ([128, 130], [0.0, 5.0])]
)
def test_samples_that_became_much_longer_are_said_at_once(tokens: list[float | None], said: list[float]) -> None:
    job = Job([(1.3, lambda cadence, at: None), (5.0, end)], tokens_per_sample=tokens)
    assert job.writer.tried == said


def test_phases_that_change_all_the_time_are_said_twice_a_second_and_the_last_one_always() -> None:
    changes: list[Event] = []
    for number in range(50):
        changes += [(0.1 * number, rollout), (0.1 * number + 0.05, update)]
    job = Job([*changes, (5.0, end)])
    assert all(later - before >= WRITE_SECONDS for before, later in pairwise(job.writer.tried))
    assert job.writer.phases[-1] == "Ended"


def test_a_trainer_that_stands_still_is_told_of_without_a_word_of_its_own() -> None:
    job = Job([(0.5, rollout), (1.0, wait), (4.0, end)])
    stalled = [at for at, demand in job.writer.written if demand.stalled]
    assert stalled
    assert stalled[0] <= 1.0 + 1.0 + LOOK_SECONDS


def test_a_place_that_is_away_is_tried_again_and_said_once_when_it_goes_and_once_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    job = Job([(60.0, end)], failures=dict.fromkeys(range(1, 9), AWAY))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "the API server is away" in caplog.records[0].message
    assert "announced again, after 8 failures" in caplog.records[1].message
    report = job.announcer.report()
    assert (report.announced, report.failures, report.problem) == (True, 8, "")
    assert report.renewals == len(job.writer.written)


def test_it_is_tried_ever_slower_and_no_slower_than_it_is_renewed() -> None:
    job = Job([(60.0, end)], failures=dict.fromkeys(range(1, 9), AWAY))
    pauses = [later - before for before, later in pairwise(job.writer.tried[1:10])]
    assert pauses == sorted(pauses)
    assert pauses[0] == WRITE_SECONDS
    assert pauses[-1] == RENEW_SECONDS


def test_one_failure_does_not_let_it_lapse() -> None:
    job = Job([(60.0, end)], failures={number: AWAY for number in range(1, 60) if number % 2})
    heard = [at for at, _ in job.writer.written]
    assert max(later - before for before, later in pairwise(heard)) < LEASE_SECONDS


def test_a_missing_right_is_said_once_and_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    job = Job([], failures=dict.fromkeys(range(100), FORBIDDEN))
    assert [record.message for record in caplog.records] == [
        "the demand of this job is not announced any more: no right to patch leases"
    ]
    assert (job.writer.written, job.writer.is_closed) == ([], True)
    assert REFUSED_SECONDS <= job.now < REFUSED_SECONDS + RENEW_SECONDS
    report = job.announcer.report()
    assert (report.announced, report.problem) == (False, "no right to patch leases")


def test_a_right_that_is_missing_for_a_moment_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    failures = dict.fromkeys(range(1, 4), FORBIDDEN) | {4: AWAY} | dict.fromkeys(range(5, 8), FORBIDDEN)
    job = Job([(60.0, end)], failures=failures)
    assert job.writer.phases[-1] == "Ended"
    assert [record.message.partition(",")[0] for record in caplog.records if record.levelno == logging.WARNING] == [
        "the demand of this job is not announced at present",
        "the demand of this job is announced again",
    ]


def test_a_fault_of_the_announcer_is_logged_and_nobodys_problem(caplog: pytest.LogCaptureFixture) -> None:
    job = Job([], failures={0: ZeroDivisionError("a fault")})
    assert "ZeroDivisionError: a fault" in caplog.text
    assert job.announcer.report().problem == "ZeroDivisionError: a fault"


def test_the_last_word_is_tried_again_too() -> None:
    job = Job([(1.0, end)], failures={1: AWAY})
    assert job.writer.phases == ["Starting", "Ended"]


def test_an_end_that_nobody_takes_is_waited_for_only_so_long(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewardpool._demand.announcer.END_SECONDS", 0.1)
    cadence = Cadence("job", GivenCadence())
    writer = FakeWriter(lambda: 0.0, dict.fromkeys(range(1000), AWAY))
    announcer = DemandAnnouncer(writer, lambda: cadence.demand(0.0))
    announcer.start()
    cadence.ends()
    announcer.end()
    assert "did not take the end of this job's demand" in caplog.text

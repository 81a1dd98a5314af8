"""One pool as the page shows it."""

from typing import Any

import pytest
from support.scripted_pools import ScriptedSource, a_pool, condition, rfc3339

from rewardpool_page.history import History, HistoryPoint, Remembered
from rewardpool_page.source import PageWorker, Seen
from rewardpool_page.view import MAX_TEXT, MAX_WORKERS, Detail, desired_steps, detail_of, state_of

NOW = 1_800_000_000.0


def seen(*, workers: int = 0, **status: Any) -> Seen:
    made = [PageWorker(name=f"worker-{number}", phase="Ready") for number in range(1, workers + 1)]
    return Seen(pool=a_pool("rl/rm", source="hf://org/model", status=status), workers=made)


def detail(**status: Any) -> Detail:
    return detail_of(seen(**status), Remembered())


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], ("NotSeen", "bad")),
        ([("Ready", "True", "Serving")], ("Serving", "good")),
        ([("Ready", "True", "AtZero")], ("AtZero", "idle")),
        ([("Ready", "True", "Serving"), ("Degraded", "True", "NodeLost")], ("NodeLost", "bad")),
        ([("Ready", "False", "Starting")], ("Starting", "busy")),
        ([("Ready", "False", "Surging"), ("Progressing", "True", "Surging")], ("Surging", "busy")),
        ([("Ready", "False", "RolledBack"), ("Serving", "True", "Serving")], ("RolledBack", "busy")),
        ([("Ready", "False", "Stopped")], ("Stopped", "idle")),
        ([("Ready", "False", "SupervisorGone")], ("SupervisorGone", "bad")),
    ],
)
def test_a_pool_s_state_is_a_word_and_a_colour(conditions: list[tuple[str, str, str]], state: tuple[str, str]) -> None:
    pool = a_pool("rl/rm", source="hf://org/model", status={"conditions": [condition(*one) for one in conditions]})
    assert state_of(pool.status) == state


def test_load_that_the_routers_do_not_say_is_none_and_not_zero() -> None:
    shown = detail().summary
    assert (shown.in_flight, shown.waiting, shown.per_second) == (None, None, None)


def test_workers_in_trouble_come_first_and_the_rest_by_their_numbers() -> None:
    phases = {"worker-10": "Ready", "worker-9": "Ready", "worker-2": "Waiting"}
    workers = [PageWorker(name=name, phase=phase) for name, phase in phases.items()]
    pool = a_pool("rl/rm", source="hf://org/model")
    shown = detail_of(Seen(pool=pool, workers=workers), Remembered()).workers
    assert [(worker.name, worker.tone) for worker in shown] == [
        ("worker-2", "bad"),
        ("worker-9", "good"),
        ("worker-10", "good"),
    ]


@pytest.mark.parametrize("phase", ["Parked", "Asleep"])
def test_a_worker_that_waits_to_be_wanted_is_no_trouble(phase: str) -> None:
    pool = a_pool("rl/rm", source="hf://org/model")
    (shown,) = detail_of(Seen(pool=pool, workers=[PageWorker(name="worker-0", phase=phase)]), Remembered()).workers
    assert shown.tone == "idle"


def test_more_workers_than_the_page_shows_are_counted() -> None:
    shown = detail_of(seen(workers=MAX_WORKERS + 3), Remembered())
    assert (len(shown.workers), shown.more_workers) == (MAX_WORKERS, 3)


def test_changes_are_newest_first_with_the_size_before() -> None:
    history = [{"time": rfc3339(NOW + at), "replicas": size, "reason": "load"} for at, size in ((0, 1), (60, 3))]
    ready = condition("Ready", "True", "Serving", at=NOW + 30)
    shown = detail(conditions=[ready], scaling={"desired": 3, "reason": "load", "history": history})
    assert [change.what for change in shown.changes] == ["1 → 3 replicas", "Ready is True", "1 replicas"]


def test_a_failed_revision_is_among_the_changes() -> None:
    failed = {"revision": "b2", "reason": "ParityExceeded", "message": "0.4 off", "time": rfc3339(NOW)}
    shown = detail(rollout={"targetRevision": "a1", "stableRevision": "a1", "failed": failed})
    assert [(change.what, change.why) for change in shown.changes] == [("revision b2 failed", "ParityExceeded")]
    assert shown.rollout is not None
    assert shown.rollout.message == "0.4 off"


def test_a_job_has_the_share_of_its_step_that_it_waited_for_scores_where_it_says_so() -> None:
    shown = detail(demands=[{"job": "a", "state": "Live", "scoreWait": 0.4}, {"job": "b", "state": "Live"}])
    assert [job.score_wait for job in shown.jobs] == [0.4, None]


def test_a_job_has_its_scores_where_it_announces_them() -> None:
    shown = detail(demands=[{"job": "a", "state": "Live", "scores": {"count": 0, "retries": 2}}])
    (scores,) = [job.scores for job in shown.jobs]
    assert scores is not None
    assert (scores["mean"], scores["retries"], scores["failures"]["infra"]) == (None, 2, 0)


def test_a_long_message_is_cut() -> None:
    shown = detail(conditions=[condition("Ready", "False", "Stopped", "x" * 4000)])
    assert len(shown.headline) == MAX_TEXT


def test_a_message_that_several_parts_have_stands_in_the_first_alone() -> None:
    said = [
        ("Ready", "False", "out of memory"),
        ("Serving", "False", "no worker answers"),
        ("Degraded", "True", "out of memory"),
    ]
    conditions = [condition(kind, status, "OutOfMemory", message) for kind, status, message in said]
    shown = detail(conditions=conditions, scaling={"desired": 1, "reason": "no worker answers"})
    assert shown.sizing is not None
    assert (shown.headline, shown.sizing.reason) == ("out of memory", "no worker answers")
    assert [fact.message for fact in shown.conditions] == ["", "", ""]
    assert {change.why for change in shown.changes} == {"OutOfMemory"}


def test_a_pool_in_good_order_has_no_headline() -> None:
    shown = detail(conditions=[condition("Ready", "True", "Serving", "2 of 2 replicas serve")])
    assert (shown.headline, shown.conditions[0].message) == ("", "2 of 2 replicas serve")


def test_what_a_manifest_gives_engines_as_variables_is_not_shown() -> None:
    variables = [{"name": "HF_TOKEN", "value": "hf_secret"}]
    pool = a_pool("rl/rm", source="hf://org/model", engine={"name": "vllm", "env": variables})
    assert "hf_secret" not in repr(detail_of(Seen(pool=pool, workers=[]), Remembered()))


def test_the_desired_size_is_the_status_s_before_the_first_sample_and_sampled_from_then_on() -> None:
    pool = a_pool(
        "rl/rm",
        source="hf://org/model",
        status={
            "scaling": {
                "desired": 4,
                "reason": "load",
                "history": [
                    {"time": rfc3339(NOW - 100), "replicas": 1, "reason": "load"},
                    {"time": rfc3339(NOW + 7), "replicas": 4, "reason": "load"},
                ],
            }
        },
    )
    samples = [
        HistoryPoint(
            at=NOW + at,
            desired=size,
            ready=1,
            in_flight=0,
            waiting=0,
            per_second=None,
            mean_seconds=None,
            p95_seconds=None,
        )
        for at, size in ((0, 1), (10, 4), (20, 2))
    ]
    assert pool.status.scaling is not None
    steps = desired_steps(pool.status.scaling.history, samples)
    assert steps == [(NOW - 100, 1), (NOW + 7, 4), (NOW + 20, 2)]


def test_gpu_seconds_are_shown_by_job_and_what_no_job_used_after_them() -> None:
    time = rfc3339(NOW)
    jobs = [{"job": "a", "gpuSeconds": 10.0, "samples": 5}, {"job": "b", "gpuSeconds": 30.0, "samples": 9}]
    costs = {"since": rfc3339(NOW - 60), "until": time, "gpus": 4, "idleGpuSeconds": 20.0, "jobs": jobs}
    shown = detail(costs=costs)
    assert [(one.name, one.gpu_seconds, one.samples, one.gpus) for one in shown.costs] == [
        ("b", 30.0, 9, 0),
        ("a", 10.0, 5, 0),
        ("(idle)", 20.0, None, 4),
    ]
    assert (shown.costs_since, shown.costs_until) == (NOW - 60, NOW)


async def test_the_scripted_pools_have_five_states() -> None:
    source = ScriptedSource(NOW)
    shown = [detail_of(one, History().get(one.pool.key)).summary for one in await source.observe(counted=True)]
    assert [line.tone for line in shown] == ["good", "good", "good", "idle", "bad"]

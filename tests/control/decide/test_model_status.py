"""A model that is on its way: what is told of it, and that it costs no worker its time."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.decide_builders import NOW, a_pool, a_snapshot, a_worker

from rewardpool_api import RewardPool
from rewardpool_api.status import CertificateStatus
from rewardpool_control.decide import decide
from rewardpool_control.plan import Plan
from rewardpool_control.snapshot import Download, Failure, Worker

GB = 1_000_000_000


def a_download(**fields: Any) -> Download:
    defaults: dict[str, Any] = {"begun": NOW - timedelta(seconds=30), "commit": "abc", "total_bytes": 40 * GB}
    return Download(**{"phase": "Downloading", "downloaded_bytes": 12 * GB, **defaults, **fields})


def a_loading_worker(name: str = "w", **fields: Any) -> Worker:
    defaults: dict[str, Any] = {"running": False, "answering": False, "download": a_download()}
    return a_worker(name, **{**defaults, **fields})


def after(plan: Plan, pool: RewardPool) -> RewardPool:
    """The pool as the next pass sees it."""
    return pool.model_copy(update={"status": plan.status})


def test_a_download_is_told_with_its_bytes() -> None:
    status = decide(a_snapshot(a_loading_worker())).status
    assert status.model is not None
    assert status.model.download is not None
    assert (status.model.download.downloaded_bytes, status.model.download.total_bytes) == (12 * GB, 40 * GB)
    for kind in ("Progressing", "Serving", "Ready"):
        condition = status.condition(kind)
        assert condition is not None
        assert (condition.reason, condition.message) == (
            "Downloading",
            "downloading the model in 1 worker: 12.0 of 40.0 GB",
        )


def test_of_several_downloads_the_one_with_least_is_told() -> None:
    behind = a_loading_worker("b", download=a_download(downloaded_bytes=GB))
    status = decide(a_snapshot(a_loading_worker("a"), behind)).status
    assert status.model is not None
    assert status.model.download is not None
    assert (status.model.download.downloaded_bytes, status.model.download.workers) == (GB, 2)


def test_numbers_of_a_download_are_reported_every_few_seconds() -> None:
    worker, pool = a_loading_worker(), a_pool(replicas=1)
    pool = after(decide(a_snapshot(worker, pool=pool)), pool)
    further = replace(worker, download=a_download(downloaded_bytes=13 * GB))
    soon = decide(a_snapshot(further, pool=pool, now=NOW + timedelta(seconds=2))).status
    later = decide(a_snapshot(further, pool=pool, now=NOW + timedelta(seconds=6))).status
    assert soon.model == pool.status.model
    assert later.model != pool.status.model


def test_the_commit_stays_when_the_worker_that_told_it_is_gone() -> None:
    worker, pool = a_worker("w", download=Download(phase="Done", commit="abc")), a_pool(replicas=1)
    pool = after(decide(a_snapshot(worker, pool=pool)), pool)
    assert pool.status.model is not None
    assert pool.status.model.commit == "abc"
    other = a_worker("x", download=Download(phase="Done", commit="other"))
    status = decide(a_snapshot(other, pool=pool)).status
    assert status.model is not None
    assert status.model.commit == "abc"


def test_another_revision_has_its_own_commit() -> None:
    worker, pool = a_worker("w", revision="old", download=Download(phase="Done", commit="abc")), a_pool(replicas=1)
    pool = after(decide(replace(a_snapshot(worker, pool=pool), revision="old")), pool)
    status = decide(a_snapshot(worker, pool=pool)).status
    assert status.model is not None
    assert status.model.commit is None


def test_a_model_that_is_there_is_no_download() -> None:
    status = decide(a_snapshot(a_worker("w", download=Download(phase="Done", commit="abc")))).status
    assert status.model is not None
    assert status.model.download is None


DEADLINE = {"rollout": {"progressDeadlineSeconds": 60}, "replicas": 1}
FAILURE = Failure(reason="SourceUnreachable", message="m")


@pytest.mark.parametrize(
    ("fields", "overdue"),
    [
        ({}, False),
        ({"download": None}, True),
        ({"download": Download(phase="Done", commit="abc")}, True),
        ({"failure": FAILURE}, True),
        ({"failure": FAILURE, "download": a_download(begun=NOW - timedelta(seconds=61))}, False),
    ],
    ids=["it gets on", "it waits for its next attempt", "it is done", "a new attempt", "a new attempt that gets on"],
)
def test_a_download_that_gets_on_costs_no_time(fields: dict[str, Any], overdue: bool) -> None:
    worker = a_loading_worker(age_seconds=100, **fields)
    condition = decide(a_snapshot(worker, pool=a_pool(**DEADLINE))).status.condition("Progressing")
    assert condition is not None
    assert (condition.reason == "ProgressDeadlineExceeded") is overdue


def test_the_time_to_answer_begins_when_the_model_is_there() -> None:
    pool, worker = a_pool(**DEADLINE), a_loading_worker(age_seconds=5000)
    pool = after(decide(a_snapshot(worker, pool=pool)), pool)
    there = replace(worker, download=Download(phase="Done", commit="abc"), running=True)
    for seconds, reason in ((1, "Scaling"), (60, "Scaling"), (62, "ProgressDeadlineExceeded")):
        plan = decide(a_snapshot(there, pool=pool, now=NOW + timedelta(seconds=seconds)))
        pool = after(plan, pool)
        condition = plan.status.condition("Progressing")
        assert condition is not None
        assert condition.reason == reason


def adapters_told(*workers: Worker, before: list[str]) -> list[str]:
    """What the status names of a pool with the adapters `helpful` and `safe`, of which it named some before."""
    pool = a_pool(replicas=len(workers))
    adapters = [{"name": name, "source": f"file:///{name}"} for name in ("safe", "helpful")]
    spec = pool.spec.model_validate({"model": {"source": "hf://org/model", "adapters": adapters}})
    model = {"type": "Discriminative", "served_name": "rm", "adapters": before}
    status = pool.status.model_validate({**pool.status.model_dump(), "model": model})
    pool = pool.model_copy(update={"spec": spec, "status": status})
    told = decide(a_snapshot(*workers, pool=pool)).status.model
    assert told is not None
    return told.adapters or []


def test_adapters_are_told_when_every_worker_has_them() -> None:
    assert adapters_told(a_worker("a"), a_worker("b"), before=[]) == ["helpful", "safe"]


def test_while_a_rollout_changes_adapters_those_of_both_revisions_are_told() -> None:
    old = a_worker("a", revision="old")
    assert adapters_told(old, a_worker("b"), before=["gone", "safe"]) == ["safe"]


def test_the_certificate_is_that_of_the_worker_that_is_least_certain() -> None:
    certificates = [
        CertificateStatus(outcome="Certified", max_abs_diff=0.0),
        CertificateStatus(outcome="NotCertified", message="too slow"),
        CertificateStatus(outcome="Certified", max_abs_diff=0.5),
        None,
    ]
    told = []
    for count in (1, 2, 4):
        workers = [a_worker(f"w{at}", certificate=one) for at, one in enumerate(certificates[-count:])]
        status = decide(a_snapshot(*workers)).status
        assert status.model is not None
        told.append(status.model.certificate)
    assert told == [None, certificates[2], certificates[1]]


def test_the_last_certificate_stays_while_nobody_answers() -> None:
    certificate, pool = CertificateStatus(outcome="Certified", max_abs_diff=0.0), a_pool(replicas=1)
    pool = after(decide(a_snapshot(a_worker("w", certificate=certificate), pool=pool)), pool)
    status = decide(a_snapshot(a_worker("w", answering=False), pool=pool)).status
    assert status.model is not None
    assert status.model.certificate == certificate


@pytest.mark.parametrize(
    ("said", "model"),
    [({"probe_score": 0.5}, {}), ({}, {"type": "Generative"})],
    ids=["workers that have none any more", "a judge in its place"],
)
def test_an_earlier_certificate_does_not_stay_for(said: dict[str, Any], model: dict[str, Any]) -> None:
    certificate, pool = CertificateStatus(outcome="Certified", max_abs_diff=0.0), a_pool(replicas=1)
    before = decide(a_snapshot(a_worker("w", certificate=certificate), pool=pool)).status
    pool = a_pool(before, replicas=1, model={"source": "hf://org/model", **model})
    status = decide(a_snapshot(a_worker("w", **said), pool=pool)).status
    assert status.model is not None
    assert status.model.certificate is None

"""What Prometheus is told, read from the exposition as Prometheus reads it."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.decide_builders import a_pool

from rewardpool_api import RewardPoolStatus
from rewardpool_api.costs import CostStatus, JobCost
from rewardpool_api.first_score import FirstScoreParts, FirstScoreStatus
from rewardpool_api.status import DemandStatus, LoadStatus, ScalingStatus, ServiceRateStatus, WorkerStart
from rewardpool_operator.metrics import Metrics

KEY = {"namespace": "rl", "pool": "rm"}
UNITS_THAT_ARE_NOT_BASE = ("milliseconds", "minutes", "hours", "kilobytes", "megabytes", "percent")


def status(*, desired=2, ready=1, load=True, revision="abc"):
    return RewardPoolStatus(
        replicas=2,
        ready_replicas=ready,
        draining_replicas=3,
        current_revision=revision,
        scaling=ScalingStatus(desired=desired, reason="spec.replicas"),
        load=LoadStatus(in_flight=7, waiting=5, tokens_per_request=2000) if load else None,
        conditions=[
            {"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
    )


@pytest.fixture
def metrics():
    return Metrics()


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


def of_pools(metrics):
    """Every sample with a pool's name."""
    return [sample for family in metrics.registry.collect() for sample in family.samples if "pool" in sample.labels]


def test_a_recorded_pool_has_its_figures(metrics):
    metrics.record_pool(a_pool(), status())
    replicas = {
        state: value(metrics, "rewardpool_pool_replicas", **KEY, state=state)
        for state in ("desired", "ready", "starting", "draining")
    }
    assert replicas == {"desired": 2, "ready": 1, "starting": 1, "draining": 3}
    assert value(metrics, "rewardpool_pool_requests", **KEY, state="in_flight") == 7
    assert value(metrics, "rewardpool_pool_requests", **KEY, state="waiting") == 5
    assert value(metrics, "rewardpool_pool_condition", **KEY, type="Ready") == 1


def test_missing_metrics_are_no_series_and_not_zero(metrics):
    metrics.record_pool(a_pool(), status())
    metrics.record_pool(a_pool(), status(load=False))
    assert value(metrics, "rewardpool_pool_requests", **KEY, state="waiting") is None


def test_tokens_have_series_where_jobs_say_how_long_their_samples_are(metrics):
    pool, measured = scaled(service_rate=RATE.model_copy(update={"tokens_per_sample": None}))
    metrics.record_pool(pool, measured.model_copy(update={"load": LoadStatus(in_flight=7)}))
    assert [sample for sample in of_pools(metrics) if "tokens" in sample.name] == []
    pool, measured = scaled(**MEASURED)
    metrics.record_pool(pool, measured.model_copy(update={"load": status().load}))
    assert value(metrics, "rewardpool_pool_tokens", **KEY, state="in_flight") == 14_000
    assert value(metrics, "rewardpool_pool_tokens", **KEY, state="waiting") == 10_000
    assert value(metrics, "rewardpool_pool_service_rate_tokens", **KEY) == 6500


def test_gpu_seconds_of_jobs_and_of_none_add_up_to_the_pool_s(metrics):
    now = datetime.now(UTC)
    jobs = [JobCost(job="a", gpu_seconds=30, samples=3), JobCost(job="b", gpu_seconds=10, samples=1)]
    costs = CostStatus(since=now, until=now - timedelta(hours=1), gpus=2, other_gpu_seconds=5, jobs=jobs)
    metrics.record_pool(a_pool(), RewardPoolStatus(costs=costs))
    seconds = {
        job: value(metrics, "rewardpool_job_gpu_seconds_total", **KEY, job=job) for job in ("a", "b", "_other", "_idle")
    }
    assert (seconds["a"], seconds["b"], seconds["_other"]) == (30, 10, 5)
    assert seconds["_idle"] >= 7200
    assert sum(seconds.values()) == pytest.approx(value(metrics, "rewardpool_pool_gpu_seconds_total", **KEY), rel=0.01)
    assert value(metrics, "rewardpool_job_samples_total", **KEY, job="a") == 3


def test_a_pool_without_gpus_has_no_series_of_costs(metrics):
    metrics.record_pool(a_pool(), RewardPoolStatus())
    assert [sample for sample in of_pools(metrics) if "gpu_seconds" in sample.name] == []


RATE = ServiceRateStatus(per_replica=6500.0, in_flight=8000, tokens_per_sample=1000.0, time="2026-01-01T00:00:00Z")
MEASURED = {
    "service_rate": RATE,
    "starts": [WorkerStart(worker="a", seconds=40.0), WorkerStart(worker="b", seconds=30.0)],
}


def scaled(**scaling):
    """A pool that scales, and its status."""
    pool = a_pool(
        autoscaling={"maxReplicas": 4, "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 8}}}
    )
    return pool, RewardPoolStatus(scaling=ScalingStatus(desired=4, reason="", **scaling))


def test_what_is_asked_for_and_what_limits_it_are_told_while_it_does(metrics):
    metrics.record_pool(*scaled(recommended_replicas=9, limit="Budget"))
    assert value(metrics, "rewardpool_pool_replicas", **KEY, state="recommended") == 9
    assert value(metrics, "rewardpool_pool_scaling_limit", **KEY, limit="Budget") == 1
    metrics.record_pool(*scaled(recommended_replicas=4))
    assert value(metrics, "rewardpool_pool_scaling_limit", **KEY, limit="Budget") is None


def test_what_was_measured_is_told_once_it_was(metrics):
    metrics.record_pool(*scaled())
    assert value(metrics, "rewardpool_pool_service_rate", **KEY) is None
    metrics.record_pool(*scaled(**MEASURED))
    assert value(metrics, "rewardpool_pool_service_rate", **KEY) == 6.5
    assert value(metrics, "rewardpool_pool_start_seconds", **KEY) == 40.0


def test_a_first_score_is_told_by_its_parts_once_it_is_there(metrics):
    pool, status = scaled()
    parts = FirstScoreParts(decision=0.5, load=2.0)
    going_on = FirstScoreStatus(since="2026-01-01T00:00:00Z", seconds=2.5, parts=parts, waits_for="Load")
    metrics.record_pool(pool, status.model_copy(update={"first_score": going_on}))
    assert value(metrics, "rewardpool_pool_first_score_seconds", **KEY, part="load") is None
    metrics.record_pool(
        pool, status.model_copy(update={"first_score": going_on.model_copy(update={"waits_for": None})})
    )
    told = [
        value(metrics, "rewardpool_pool_first_score_seconds", **KEY, part=part) for part in ("decision", "load", "pull")
    ]
    assert told == [0.5, 2.0, 0.0]


def test_training_jobs_are_counted_by_what_became_of_their_word(metrics):
    pool, announced = scaled()
    jobs = [("a", "Live", True), ("b", "Live", False), ("c", "Lapsed", True), ("d", "Ended", False)]
    demands = [DemandStatus(job=job, state=state, stalled=stalled) for job, state, stalled in jobs]
    metrics.record_pool(pool, announced.model_copy(update={"demands": demands}))
    counted = {
        state: value(metrics, "rewardpool_pool_demands", **KEY, state=state)
        for state in ("live", "stalled", "lapsed", "ignored")
    }
    assert counted == {"live": 2, "stalled": 1, "lapsed": 1, "ignored": 0}


def test_a_new_revision_replaces_the_old_one(metrics):
    metrics.record_pool(a_pool(), status(revision="old"))
    metrics.record_pool(a_pool(), status(revision="new"))
    revisions = [sample.labels["revision"] for sample in of_pools(metrics) if "revision" in sample.labels]
    assert revisions == ["new"]


@pytest.mark.parametrize(("before", "after", "direction"), [(1, 3, "up"), (3, 1, "down")])
def test_a_change_of_size_is_counted_once(metrics, before, after, direction):
    for desired in (before, after, after):
        metrics.record_pool(a_pool(), status(desired=desired))
    changes = {
        way: value(metrics, "rewardpool_pool_scaling_changes_total", **KEY, direction=way) for way in ("up", "down")
    }
    assert changes == {"up": 0, "down": 0, direction: 1}


def test_what_is_counted_of_a_pool_is_zero_from_its_first_sight(metrics):
    metrics.record_pool(a_pool(), status())
    counted = {sample.name: sample.value for sample in of_pools(metrics) if sample.name.endswith("_total")}
    assert counted == dict.fromkeys(
        f"rewardpool_pool_{what}_total" for what in ("scaling_changes", "router_repairs", "rollouts")
    ) | dict.fromkeys(counted, 0)


def test_a_pool_that_is_gone_leaves_no_series(metrics):
    for desired in (1, 2, 1):
        metrics.record_pool(a_pool(), status(desired=desired))
    metrics.router_repaired("rl", "rm", "join")
    metrics.router_repaired("rl", "rm", "leave")
    metrics.record_events("rl", "rm", ["RolloutCompleted", "Scaled"])
    metrics.record_events("rl", "rm", ["RolledBack"])
    metrics.forget_pool("rl", "rm")
    assert of_pools(metrics) == []


def test_to_forget_a_pool_that_was_never_seen_is_fine(metrics):
    metrics.forget_pool("rl", "nobody")
    assert of_pools(metrics) == []


def test_a_request_without_an_answer_has_no_code(metrics):
    metrics.kube_request("get", 200)
    metrics.kube_request("get", None)
    assert value(metrics, "rewardpool_kube_requests_total", verb="get", code="200") == 1
    assert value(metrics, "rewardpool_kube_requests_total", verb="get", code="none") == 1


def used(metrics):
    """With a sample of everything."""
    metrics.record_pool(a_pool(), status(desired=1))
    metrics.record_pool(a_pool(), status(desired=2))
    pool, measured = scaled(recommended_replicas=9, limit="Budget", **MEASURED)
    first = FirstScoreStatus(since="2026-01-01T00:00:00Z", seconds=1.0)
    metrics.record_pool(pool, status().model_copy(update={"scaling": measured.scaling, "first_score": first}))
    metrics.record_failing("rl", "rm", [("Secrets", "SecretsUnreadable", datetime(2026, 1, 1, tzinfo=UTC))])
    metrics.router_repaired("rl", "rm", "join")
    metrics.record_events("rl", "rm", ["RolloutCompleted", "Scaled"])
    metrics.object_repaired("Service")
    metrics.pass_began(0.1)
    metrics.pass_ended(0.1, own_seconds=0.02)
    metrics.pass_failed("defect")
    metrics.read_queue_length(lambda: 4)
    metrics.kube_request("patch", 409)
    metrics.serves_namespace("rl", True)
    metrics.watch_spoke("pods")
    metrics.read_leading(lambda: True)
    return metrics


def test_a_step_that_fails_is_told_with_its_beginning_until_it_does_not(metrics):
    since = datetime(2026, 1, 1, tzinfo=UTC)
    metrics.record_failing("rl", "rm", [("Secrets", "SecretsUnreadable", since)])
    labels = {**KEY, "step": "Secrets", "reason": "SecretsUnreadable"}
    assert value(metrics, "rewardpool_pool_failing_since_timestamp_seconds", **labels) == since.timestamp()
    metrics.record_failing("rl", "rm", [])
    assert of_pools(metrics) == []


async def test_the_exposition_is_what_prometheus_parses(metrics):
    text = (await used(metrics).exposition("")).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["rewardpool_reconcile_queue_length"].samples[0].value == 4
    assert families["rewardpool_leader"].samples[0].value == 1


async def families_of(metrics):
    text = (await used(metrics).exposition("")).decode()
    return [family for family in text_string_to_metric_families(text) if family.name.startswith("rewardpool_")]


async def test_names_follow_the_conventions_of_prometheus(metrics):
    """The rules of `promtool check metrics`, and the unit in the name."""
    for family in await families_of(metrics):
        assert re.fullmatch(r"rewardpool(_[a-z]+)+", family.name)
        assert family.documentation.endswith("."), family.name
        assert not family.name.endswith(UNITS_THAT_ARE_NOT_BASE)
        assert not re.search(r"_(count|sum|bucket|gauge|counter|histogram)$", family.name)
        assert all(sample.name.endswith("_total") for sample in family.samples) == (family.type == "counter")
        if family.type == "histogram":
            assert family.name.endswith("_seconds")


async def test_labels_are_bounded(metrics):
    allowed = {
        "namespace", "pool", "engine", "model_type", "revision", "state", "type", "direction", "change", "outcome",
        "kind", "reason", "verb", "code", "resource", "version", "le", "limit", "step", "part",
    }  # fmt: skip
    assert {
        label for family in await families_of(metrics) for sample in family.samples for label in sample.labels
    } <= allowed

"""What commands show, as text."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console
from support.decide_builders import a_pool
from support.kube_builders import a_pod

from rewardpool_api import RewardPoolStatus, names
from rewardpool_api.costs import CostStatus, JobCost
from rewardpool_api.first_score import FirstScoreStatus
from rewardpool_api.status import DemandStatus, LoadStatus, ScalingDecision
from rewardpool_cli import tables
from rewardpool_cli.commands import top
from rewardpool_cli.commands.logs import Component, sources_of
from rewardpool_cli.explain import Evidence
from rewardpool_cli.pods import processes_of_pods

TIME = "2026-01-01T12:00:00Z"


def text_of(renderable, width=160):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(renderable)
    return console.export_text()


def status(*, ready=1, load=True, degraded=None):
    conditions = [{"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": TIME}]
    if degraded:
        conditions.append({"type": "Degraded", "status": "True", "reason": degraded, "lastTransitionTime": TIME})
    return RewardPoolStatus.model_validate(
        {
            "replicas": 2,
            "readyReplicas": ready,
            "drainingReplicas": 1,
            "url": "http://rm-router.rl.svc:8080",
            "currentRevision": "new",
            "scaling": {"desired": 3, "reason": ""},
            "load": {"inFlight": 7, "waiting": 5} if load else None,
            "conditions": conditions,
            "rollout": {"targetRevision": "old", "stableRevision": "old"},
        }
    )


def test_a_pool_is_shown_with_its_load_and_conditions():
    shown = text_of(tables.pool_screen(a_pool(status()), [], where="in the cluster"))
    assert "rl/rm  Discriminative hf://org/model on vllm, in the cluster" in shown
    assert "1/3 ready · 7 in flight, 5 waiting" in shown
    assert "revision new · stable revision old" in shown
    assert "Serving" in shown


def test_parked_replicas_are_shown_beside_those_that_serve():
    pool = a_pool(status().model_copy(update={"parked_replicas": 2}))
    assert "1/3 ready, 2 parked · 7 in flight" in text_of(tables.pool_screen(pool, [], where="in the cluster"))


@pytest.mark.parametrize(
    ("waits_for", "line"),
    [
        (None, "first score 3.5 s: load 2.0 s, pull 1.5 s"),
        ("Load", "first score 3.5 s, waits for load now: load 2.0 s, pull 1.5 s"),
    ],
)
def test_a_pool_is_shown_with_what_its_first_request_waited_for(waits_for, line):
    first = {
        "since": "2026-01-01T00:00:00Z",
        "seconds": 3.5,
        "parts": {"pull": 1.5, "load": 2.0},
        "waitsFor": waits_for,
    }
    pool = a_pool(status().model_copy(update={"first_score": FirstScoreStatus.model_validate(first)}))
    assert line in text_of(tables.pool_screen(pool, [], where="in the cluster")).splitlines()


def test_text_of_others_is_no_markup():
    words = {"reason": "[/]odd", "message": "[red]quota[/] [unclosed"}
    conditions = [status().conditions[0].model_copy(update=words)]
    pool = a_pool(status().model_copy(update={"conditions": conditions}))
    assert "[red]quota[/] [unclosed" in text_of(tables.pool_screen(pool, [], where="in the cluster"))


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_the_last_changes_of_size_are_shown_with_what_limited_them():
    history = [
        ScalingDecision(time="2026-01-01T11:50:00Z", replicas=2, reason="12 requests"),
        ScalingDecision(time="2026-01-01T11:59:15Z", replicas=4, reason="[9 of them]", limit="Budget"),
    ]
    shown = [line.split() for line in text_of(tables.history_table(history, NOW)).splitlines()]
    assert shown == [
        ["changed", "replicas", "limit", "why"],
        ["45s", "ago", "2", "→", "4", "Budget", "[9", "of", "them]"],
        ["10m", "ago", "2", "12", "requests"],
    ]


def a_demand(**fields):
    return DemandStatus.model_validate({"job": "grpo", "state": "Live", "phase": "Update", **fields})


def test_what_jobs_announce_is_a_line_each():
    demands = [
        a_demand(samples=4096, nextBurst="2026-01-01T12:00:40Z", replicas=4, stalled=True),
        DemandStatus(job="demand-rm-x", state="Ignored", message="it is [/]no JSON"),
    ]
    pool = a_pool(status().model_copy(update={"demands": demands}))
    lines = text_of(tables.pool_screen(pool, [], where="in the cluster", now=NOW)).splitlines()
    shown = [line.split() for line in lines if line.startswith(("grpo", "demand-"))]
    assert shown == [
        ["grpo", "Live", "Update,", "stalled", "4096", "in", "40s", "4"],
        ["demand-rm-x", "Ignored", "it", "is", "[/]no", "JSON"],
    ]


def test_gpu_hours_are_a_line_for_each_job_and_for_the_rest_up_to_now():
    jobs = [JobCost(job="grpo", gpu_seconds=5400, samples=8192)]
    costs = CostStatus(since=NOW, until=NOW - timedelta(hours=1), gpus=2, idle_gpu_seconds=1800, jobs=jobs)
    pool = a_pool(status().model_copy(update={"costs": costs}))
    lines = text_of(tables.pool_screen(pool, [], where="in the cluster", now=NOW)).splitlines()
    shown = [line.split() for line in lines if line.startswith(("grpo", "(idle)"))]
    assert shown == [["grpo", "8192", "1.50"], ["(idle)", "2.50"]]


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        (a_demand(nextBurst="2026-01-01T12:03:00Z"), "in 3m"),
        (a_demand(nextBurst="2026-01-01T12:00:00.5Z"), "now"),
        (a_demand(nextBurst="2026-01-01T11:59:30Z"), "due for 30s"),
        (a_demand(phase="Rollout"), "now"),
        (a_demand(phase="Starting"), "not known"),
        (a_demand(state="Lapsed", nextBurst="2026-01-01T12:03:00Z"), ""),
    ],
)
def test_the_next_burst_is_told_in_words(demand, words):
    assert tables.next_burst(demand, NOW) == words


def test_several_pools_are_a_line_each_with_what_is_wrong():
    shown = text_of(tables.pools_screen([a_pool(status()), a_pool(status(degraded="ImagePull")), a_pool()]))
    assert len(shown.splitlines()) == 4
    assert "ImagePull" in shown


def test_the_wide_list_says_also_what_is_served_in_which_revision():
    (line,) = text_of(tables.pools_screen([a_pool(status())], wide=True)).splitlines()[1:]
    assert line.split()[-3:] == ["vllm", "hf://org/model", "new"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(45, "45s"), (119, "119s"), (600, "10m"), (7200, "2h"), (200_000, "2d")]
)
def test_an_age_is_short(seconds, words):
    assert tables.short_time(seconds) == words


def test_pods_are_shown_with_what_they_do():
    leaving = a_pod("w1")
    leaving["metadata"]["annotations"] = {names.ANNOTATION_DRAINING_SINCE: TIME}
    unpulled = a_pod("w2", state={"waiting": {"reason": "ErrImagePull"}}, started=False)
    pods = (a_pod("w0"), leaving, unpulled, a_pod("r0", component="router"))
    evidence = Evidence(now=datetime(2026, 1, 1, 12, 5, tzinfo=UTC), pool=a_pool(status()), pods=pods)
    found = {item.name: (item.component, item.phase, item.age_seconds) for item in processes_of_pods(evidence)}
    assert found == {
        "r0": ("router", "Ready", 300),
        "w0": ("worker", "Ready", 300),
        "w1": ("worker", "Draining", 300),
        "w2": ("worker", "Image", 300),
    }


def test_a_pod_that_is_parked_is_not_shown_as_ready():
    leaving = a_pod("w2")
    leaving["metadata"]["annotations"] = {names.ANNOTATION_DRAINING_SINCE: TIME}
    pods = (
        a_pod("w0"),
        a_pod("w1"),
        leaving,
        a_pod("w3", state={"waiting": {"reason": "ErrImagePull"}}, started=False),
    )
    pool = a_pool(status().model_copy(update={"parked_workers": ["w1", "w2", "w3"]}))
    evidence = Evidence(now=datetime(2026, 1, 1, 12, 5, tzinfo=UTC), pool=pool, pods=pods)
    phases = {item.name: item.phase for item in processes_of_pods(evidence)}
    assert phases == {"w0": "Ready", "w1": "Parked", "w2": "Draining", "w3": "Image"}


def row(pool, *, waiting=0, in_flight=0, rate=None, tokens=(None, None, None)):
    return top.Row(
        pool=pool,
        ready=1,
        desired=1,
        starting=0,
        draining=0,
        in_flight=in_flight,
        waiting=waiting,
        samples_per_second=rate,
        tokens_in_flight=tokens[0],
        tokens_waiting=tokens[1],
        tokens_per_second=tokens[2],
        state="Serving",
    )


def test_the_busiest_pool_is_first():
    rows = [row("a"), row("b", in_flight=9), row("c", waiting=1), row("d", waiting=None, in_flight=None)]
    assert [item.pool for item in top.busiest_first(rows)] == ["c", "b", "a", "d"]


def test_what_is_unknown_is_not_shown_as_zero():
    shown = text_of(top.screen([row("a", waiting=None, in_flight=None)], height=None))
    assert shown.splitlines()[1].split() == ["a", "1/1", "?", "?", "?", "Serving"]


def test_a_rate_is_shown_where_it_is_known():
    assert "12.3" in text_of(top.screen([row("a", rate=12.34)], height=None))


def test_tokens_are_shown_of_the_pools_where_they_are_known():
    assert "tokens" not in text_of(top.screen([row("a")], height=None))
    shown = text_of(top.screen([row("a"), row("b", in_flight=2, rate=1, tokens=(16384, 0, 8192.4))], height=None))
    assert [line.split()[-4:-1] for line in shown.splitlines()[1:]] == [["16384", "0", "8192"], ["0", "0", "?"]]


def test_a_row_has_the_tokens_of_the_requests():
    pool = a_pool(status().model_copy(update={"load": LoadStatus(in_flight=4, waiting=3, tokens_per_request=1000.5)}))
    found = top.row_of(pool, 2.0)
    assert (found.tokens_in_flight, found.tokens_waiting, found.tokens_per_second) == (4002, 3002, 2001.0)
    assert "4 in flight of 4002 tokens, 3 waiting of 3002 tokens" in text_of(tables.pool_screen(pool, [], where="here"))


def test_more_pools_than_the_screen_has_lines_are_counted():
    shown = text_of(top.screen([row(f"pool-{number}") for number in range(50)], height=10))
    assert len(shown.splitlines()) <= 10
    assert "44 pools with less to do" in shown


def test_a_row_says_what_the_status_says():
    found = top.row_of(a_pool(status(load=False, degraded="ImagePull")), None)
    assert (found.ready, found.desired, found.starting, found.draining) == (1, 3, 1, 1)
    assert (found.in_flight, found.waiting, found.state) == (None, None, "ImagePull")


def test_logs_are_those_of_containers_that_ran():
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    crashed = a_pod(
        "w1", state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=2, lastState={"terminated": {}}
    )
    pods = [a_pod("w2", state=waiting), crashed, a_pod("w0"), a_pod("r0", component="router")]
    assert [source.who for source in sources_of(pods, None, previous=False)] == ["r0", "w0", "w1"]
    assert [source.who for source in sources_of(pods, Component.ROUTER, previous=False)] == ["r0"]
    assert [source.who for source in sources_of(pods, None, previous=True)] == ["w1"]


def test_a_container_that_initialises_is_named_beside_its_pod():
    pod = a_pod("w0", state={"waiting": {"reason": "PodInitializing"}})
    pod["status"]["initContainerStatuses"] = [{"name": "download", "state": {"running": {}}}]
    assert [source.who for source in sources_of([pod], None, previous=False)] == ["w0/download"]

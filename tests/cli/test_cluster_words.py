"""What the API server refuses, in words. Its own words are those of Kubernetes 1.34."""

import pytest

from rewardpool_cli.cluster import in_words, operations
from rewardpool_cli.commands.logs import seconds_of
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.throughput import requests_in
from rewardpool_kube.errors import KubeError

FORBIDDEN = (
    'rewardpools.rewardpool.dev "rm" is forbidden: User "ann" cannot patch resource "rewardpools"'
    ' in API group "rewardpool.dev" in the namespace "rl"'
)
FORBIDDEN_CORE = 'pods is forbidden: User "ann" cannot list resource "pods" in API group "" at the cluster scope'


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (403, FORBIDDEN, "ann may not patch rewardpools in namespace rl (403). Kubernetes' role `edit` allows it"),
        (403, FORBIDDEN_CORE, "ann may not list pods in the whole cluster (403). Kubernetes' role `view` allows it"),
        (403, "blocked by a webhook", "blocked by a webhook"),
        (401, "Unauthorized", "does not accept the credentials (401): renew them"),
        (404, "the server could not find the requested resource", "the cluster has no RewardPools: install the chart"),
        (422, "spec.replicas: Invalid value", "spec.replicas: Invalid value"),
    ],
)
def test_a_refusal_is_told_in_words(status, message, words):
    assert words in in_words(KubeError("get /x", status=status, reason="", message=message))


def test_parts_that_an_earlier_spec_did_not_have_are_removed():
    before = {"model": {"source": "new"}, "engine": {"args": ["--x"]}, "replicas": 2}
    after = {"model": {"source": "old"}, "worker": {"gpus": 0}}
    assert operations(before, after, path="/spec", keys=("model", "engine", "worker")) == [
        {"op": "add", "path": "/spec/model", "value": {"source": "old"}},
        {"op": "remove", "path": "/spec/engine"},
        {"op": "add", "path": "/spec/worker", "value": {"gpus": 0}},
    ]


@pytest.mark.parametrize(
    ("duration", "seconds"), [("90s", 90), ("90", 90), ("10m", 600), ("1h30m", 5400), ("2h", 7200)]
)
def test_a_time_is_read_as_people_write_it(duration, seconds):
    assert seconds_of(duration) == seconds


@pytest.mark.parametrize("duration", ["", "0", "soon", "-5m", "1d"])
def test_what_is_no_time_is_refused(duration):
    with pytest.raises(RefusedError, match="--since"):
        seconds_of(duration)


def test_only_requests_for_workers_count_as_samples():
    text = (
        "# TYPE smg_router_requests_total counter\n"
        'smg_router_requests_total{endpoint="other"} 7\n'
        'smg_router_requests_total{endpoint="chat"} 2\n'
        "# TYPE smg_http_requests_total counter\n"
        "smg_http_requests_total 100\n"
    )
    assert requests_in(text) == 9

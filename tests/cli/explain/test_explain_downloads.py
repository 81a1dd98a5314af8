"""What `explain` says of a model that is on its way, and of one that does not come."""

import json
from datetime import UTC, datetime
from typing import Any

from support.kube_builders import a_pod

from rewardpool_api import RewardPool
from rewardpool_cli.explain import Evidence, Explanation, explain

NOW = datetime(2026, 1, 1, 12, 10, tzinfo=UTC)
DOWNLOAD = {
    "phase": "Downloading",
    "downloadedBytes": 12_300_000_000,
    "totalBytes": 40_100_000_000,
    "time": "2026-01-01T12:09:58Z",
}


def told(state: dict[str, Any], last: dict[str, Any] | None = None) -> Explanation:
    """The first thing that is said of a pool whose one worker downloads."""
    pool = RewardPool.model_validate(
        {
            "metadata": {"name": "rm", "namespace": "rl"},
            "spec": {"model": {"source": "hf://org/model"}, "replicas": 1},
            "status": {
                "observedGeneration": 1,
                "scaling": {"desired": 1, "reason": "spec.replicas"},
                "model": {"type": "Discriminative", "servedName": "rm", "download": DOWNLOAD},
            },
        }
    )
    pod = a_pod(state={"waiting": {"reason": "PodInitializing"}}, started=False)
    pod["status"]["initContainerStatuses"] = [{"name": "download", "state": state, "lastState": last or {}}]
    return explain(Evidence(now=NOW, pool=pool, pods=(pod,)))[0]


def test_a_model_on_its_way_is_waited_for_with_its_bytes() -> None:
    found = told({"running": {"startedAt": "2026-01-01T12:00:05Z"}})
    assert found.kind == "waiting"
    assert found.what == "The worker pod waits for the model: downloading the model in 1 worker: 12.3 of 40.1 GB"


def test_a_download_that_failed_is_told_in_its_own_words() -> None:
    report = json.dumps({"reason": "DiskFull", "message": "the model takes 9.0 GB more"})
    found = told({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"exitCode": 1, "message": report}})
    assert (found.kind, found.said) == ("problem", "the model takes 9.0 GB more")
    assert "DiskFull" in found.what

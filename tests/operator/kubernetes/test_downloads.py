"""What pods and programs say of downloads, and the pins made of it."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import ClientSession, web
from support.kube_builders import a_pod, a_pool

from rewardpool_api import RewardPoolStatus, names
from rewardpool_api.status import ModelStatus
from rewardpool_control.snapshot import Download, Worker
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.polls.downloads import Downloads, download_of, pins_of, with_download
from rewardpool_operator.kubernetes.polls.reading import Polling
from rewardpool_operator.kubernetes.workload import pods

BEGUN = "2026-01-01T12:00:05Z"
TOLD = {"phase": "Downloading", "commit": "abc", "downloadedBytes": 5, "totalBytes": 9, "note": None}


def a_loading_pod(name: str = "w0", *, state: dict[str, Any], last: dict[str, Any] | None = None) -> Object:
    pod = a_pod(name, state={"waiting": {"reason": "PodInitializing"}}, started=False)
    pod["status"]["initContainerStatuses"] = [{"name": "download", "state": state, "lastState": last or {}}]
    return pod


def ended(report: Any, *, code: int = 0, **fields: Any) -> dict[str, Any]:
    message = report if isinstance(report, str) else json.dumps(report)
    return {"terminated": {"exitCode": code, "message": message, **fields}}


def seen(pod: Object) -> Worker:
    return with_download(pods.worker_of(pod), pod)


def pool_objects(*found: Object, revisions: tuple[str, ...] = ("new",), pins: str | None = None) -> Objects:
    deployments = [{"metadata": {"name": f"rm-worker-{r}", "labels": {names.LABEL_REVISION: r}}} for r in revisions]
    files = {"metadata": {"name": "rm-pins"}, "data": {names.PINS_FILE: pins} if pins is not None else {}}
    return Objects(pool={}, deployments=tuple(deployments), pods=found, config_maps=(files,))


def test_a_worker_without_a_download_is_as_it_was() -> None:
    worker = pods.worker_of(a_pod())
    assert with_download(worker, a_pod()) == worker


def test_a_download_that_runs_is_known_by_when_it_began() -> None:
    worker = seen(a_loading_pod(state={"running": {"startedAt": BEGUN}}))
    assert worker.download == Download(phase="Resolving", begun=datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC))
    assert (worker.failure, worker.is_downloading) == (None, True)


def a_pod_with_an_adapter(model: dict[str, Any], adapter: dict[str, Any]) -> Object:
    pod = a_loading_pod(state=model)
    adapters = {"name": "download-adapter-0", "state": adapter, "lastState": {}}
    pod["status"]["initContainerStatuses"].append(adapters)
    return pod


def test_an_adapters_download_is_waited_for_after_the_models() -> None:
    pod = a_pod_with_an_adapter(ended({"commit": "abc"}), {"running": {"startedAt": BEGUN}})
    assert seen(pod).is_downloading
    done = seen(a_pod_with_an_adapter(ended({"commit": "abc"}), ended({"commit": "of the adapter"})))
    assert done.download == Download(phase="Done", commit="abc")


def test_why_an_adapter_cannot_be_had_is_said_in_the_downloads_words() -> None:
    why = ended({"reason": "ModelNotFound", "message": "the hub shows no model org/safe"}, code=1)
    failure = seen(a_pod_with_an_adapter(ended({"commit": "abc"}), why)).failure
    assert failure is not None
    assert (failure.reason, failure.message) == ("ModelNotFound", "the hub shows no model org/safe")


def test_a_download_that_is_done_has_its_commit() -> None:
    worker = seen(a_loading_pod(state=ended({"commit": "abc"})))
    assert worker.download == Download(phase="Done", commit="abc")
    assert not worker.is_downloading


def test_a_download_that_failed_says_why_in_its_own_words() -> None:
    last = ended({"reason": "DiskFull", "message": "give it more"}, code=1)
    worker = seen(a_loading_pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, last=last))
    assert worker.failure is not None
    assert (worker.failure.reason, worker.failure.message) == ("DiskFull", "give it more")
    assert worker.download is None


def test_a_second_attempt_keeps_the_cause_of_the_first() -> None:
    last = ended({"reason": "SourceUnreachable", "message": "m"}, code=1)
    worker = seen(a_loading_pod(state={"running": {"startedAt": BEGUN}}, last=last))
    assert worker.failure is not None
    assert worker.failure.reason == "SourceUnreachable"
    assert worker.download is not None


def test_a_download_that_was_killed_for_memory_is_told_so() -> None:
    last = ended("", code=137, reason="OOMKilled")
    worker = seen(a_loading_pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, last=last))
    assert worker.failure is not None
    assert worker.failure.reason == "OutOfMemory"


def test_an_image_that_cannot_be_had_is_told_of_the_download_too() -> None:
    worker = seen(a_loading_pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}))
    assert worker.failure is not None
    assert worker.failure.reason == "ImagePull"


def test_a_pod_that_downloads_is_not_stuck() -> None:
    assert not pods.is_stuck_before_start(a_loading_pod(state={"running": {"startedAt": BEGUN}}))
    assert pods.is_stuck_before_start(a_loading_pod(state={"waiting": {"reason": "PodInitializing"}}))
    assert pods.is_stuck_before_start(a_loading_pod(state=ended({"commit": "abc"})))


def test_the_first_workers_commit_is_pinned_for_its_revision() -> None:
    first, second = a_loading_pod("b", state=ended({"commit": "one"})), a_loading_pod("a", state=ended({"commit": "2"}))
    second["metadata"]["creationTimestamp"] = "2026-01-01T12:00:09Z"
    assert pins_of(a_pool(), pool_objects(second, first)) == {"new": "one"}


def test_a_pin_that_was_written_stays_whatever_pods_say() -> None:
    pod = a_loading_pod(state=ended({"commit": "other"}))
    assert pins_of(a_pool(), pool_objects(pod, pins='{"new": "one"}')) == {"new": "one"}


def test_a_pin_goes_with_the_revisions_deployment() -> None:
    assert pins_of(a_pool(), pool_objects(pins='{"gone": "one"}')) == {}


def test_a_lost_pin_comes_back_from_the_status() -> None:
    model = ModelStatus(type="Discriminative", served_name="rm", commit="abc")
    pool = a_pool().model_copy(update={"status": RewardPoolStatus(current_revision="new", model=model)})
    assert pins_of(pool, pool_objects()) == {"new": "abc"}


@pytest.mark.parametrize("damaged", ["no JSON", "[1]"])
def test_a_pin_that_was_damaged_by_hand_is_made_again(damaged: str) -> None:
    pod = a_loading_pod(state=ended({"commit": "abc"}))
    assert pins_of(a_pool(), pool_objects(pod, pins=damaged)) == {"new": "abc"}


async def test_a_worker_that_downloads_is_asked_how_far_it_is() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(TOLD)

    app = web.Application()
    app.router.add_get(names.DOWNLOAD_PATH, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    pod = a_loading_pod(state={"running": {"startedAt": BEGUN}})
    worker = replace(pods.worker_of(pod), url=site.name)
    async with ClientSession() as session:
        downloads = Downloads(Polling(session=session))
        (seen,) = await downloads.progress([worker], (pod,))
        downloads.close()
    await runner.cleanup()
    assert seen.download is not None
    assert (seen.download.downloaded_bytes, seen.download.total_bytes, seen.download.commit) == (5, 9, "abc")


async def test_a_worker_that_does_not_say_is_known_by_its_pod() -> None:
    pod = a_loading_pod(state={"running": {"startedAt": BEGUN}})
    worker = replace(pods.worker_of(pod), url="http://127.0.0.1:9")
    async with ClientSession() as session:
        (seen,) = await Downloads(Polling(session=session)).progress([worker], (pod,))
    assert seen.download is not None
    assert seen.download.phase == "Resolving"


@pytest.mark.parametrize("change", [{"phase": "Odd"}, {"downloadedBytes": "many"}, {"totalBytes": []}])
def test_words_of_somebody_else_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        download_of({**TOLD, **change}, begun=None)

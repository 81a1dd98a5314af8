"""Downloads of a pool's workers: what their pods and programs say of them, and the pins that keep a revision together.

A revision of workers serves one commit of its model. The first download resolves the branch and reports the commit; it
is written into the ConfigMap POOL-pins, where every later pod of the revision finds it. It is kept there for as long as
the revision has a Deployment. What the pods report stays in their status, so a lost pin is found again.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, get_args

import aiohttp

from rewardpool_api import RewardPool, names
from rewardpool_api.times import time_of
from rewardpool_control.snapshot import Download, DownloadPhase, Worker
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.polls.reading import Polling, Reading, keep_only
from rewardpool_operator.kubernetes.workload import pods
from rewardpool_operator.kubernetes.workload.containers import CONTAINER_DOWNLOAD, is_download
from rewardpool_runtime.untrusted import NONSENSE, count_of, printable

ASK_SECONDS: Final = 2.0
MAX_POLLED: Final = 4  # workers that share a cache all say the same
MAX_ANSWER_BYTES: Final = 16 * 1024
MAX_NOTE: Final = 512
_COMMIT: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:/-]{0,127}")


def pins_of(pool: RewardPool, objects: Objects) -> dict[str, str]:
    """The commit of every revision that has workers or may have some again."""
    there = {item["metadata"]["labels"][names.LABEL_REVISION] for item in objects.worker_deployments()}
    pins = {revision: commit for revision, commit in _written_pins(pool, objects).items() if revision in there}
    status = pool.status
    if status.model is not None and status.model.commit is not None and status.current_revision in there:
        pins.setdefault(status.current_revision, status.model.commit)
    workers = objects.pods_of(names.COMPONENT_WORKER)
    for pod in sorted(workers, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
        commit = commit_of(_report(pod).get("commit"))
        if commit is not None:
            pins.setdefault(pod["metadata"]["labels"][names.LABEL_REVISION], commit)
    return pins


def with_download(worker: Worker, pod: Object) -> Worker:
    """The worker with what its pod says of its downloads: the first that is not done, or that of the model."""
    status = _current(pod)
    if not status:
        return worker
    if pods.has_ended_well(status.get("state", {})):
        return replace(worker, download=Download(phase="Done", commit=commit_of(_report(pod).get("commit"))))
    failure = pods.failure_of(status)
    running = status.get("state", {}).get("running")
    if running is None:
        return replace(worker, failure=failure or worker.failure)
    begun = time_of(running.get("startedAt")) or worker.created
    return replace(worker, failure=failure, download=Download(phase="Resolving", begun=begun))


class Downloads:
    """Asks workers that download how far they are."""

    def __init__(self, polling: Polling) -> None:
        self._polling = polling
        self._readings: dict[str, Reading[Download | None]] = {}

    async def progress(self, workers: list[Worker], found: tuple[Object, ...]) -> list[Worker]:
        """The workers, with their downloads as the pods and the programs report them."""
        by_name = {pod["metadata"]["name"]: pod for pod in found}
        seen = [with_download(worker, by_name[worker.name]) for worker in workers]
        polled = [worker for worker in seen if worker.is_downloading and worker.active][:MAX_POLLED]
        keep_only(self._readings, {worker.name for worker in polled})
        answers = await asyncio.gather(*(self._request(worker) for worker in polled))
        progress = {worker.name: answer for worker, answer in zip(polled, answers, strict=True) if answer is not None}
        return [replace(worker, download=progress.get(worker.name, worker.download)) for worker in seen]

    def close(self) -> None:
        keep_only(self._readings, ())

    async def _request(self, worker: Worker) -> Download | None:
        reading = self._readings.setdefault(
            worker.name, Reading(self._polling, is_answer=lambda answer: answer is not None)
        )
        if worker.url:
            await reading.poll(partial(_read, self._polling.session, worker))
        return reading.last


async def _read(session: aiohttp.ClientSession, worker: Worker) -> Download | None:
    try:
        timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
        async with session.get(f"{worker.url}{names.DOWNLOAD_PATH}", timeout=timeout) as response:
            if response.status != 200:
                return None
            progress = json.loads(await response.content.read(MAX_ANSWER_BYTES))
        return download_of(progress, begun=worker.download.begun if worker.download else None)
    except (aiohttp.ClientError, TimeoutError, *NONSENSE):
        # Not there yet, just over, or not ours: what the pod says has to do.
        return None


def download_of(progress: Mapping[str, Any], *, begun: datetime | None) -> Download:
    """The program's words as a snapshot has them.

    Raises:
        KeyError, TypeError, ValueError: they are not that program's.
    """
    total, note, commit, phase = progress["totalBytes"], progress["note"], progress["commit"], progress["phase"]
    downloaded_bytes, total_bytes = count_of(progress["downloadedBytes"]), count_of(total)
    if phase not in get_args(DownloadPhase) or downloaded_bytes is None or (total_bytes is None) != (total is None):
        raise ValueError(f"{phase!r:.60}, {progress['downloadedBytes']!r:.60} of {total!r:.60} bytes")
    return Download(
        phase=phase,
        begun=begun,
        commit=commit_of(commit),
        downloaded_bytes=downloaded_bytes,
        total_bytes=total_bytes,
        note=None if note is None else printable(note, most=MAX_NOTE),
    )


def commit_of(commit: object) -> str | None:
    """Return the model's commit in a download's report; None for a value that is neither a commit nor a digest."""
    return commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else None


def _report(pod: Object) -> dict[str, Any]:
    status = next((status for status in _statuses(pod) if status["name"] == CONTAINER_DOWNLOAD), {})
    state = status.get("state", {})
    return pods.report_of(state["terminated"]) if pods.has_ended_well(state) else {}


def _current(pod: Object) -> Object:
    # Init containers run one after the other, the model's download first.
    statuses = sorted(_statuses(pod), key=lambda status: (status["name"] != CONTAINER_DOWNLOAD, status["name"]))
    left = (status for status in statuses if not pods.has_ended_well(status.get("state", {})))
    return next(left, statuses[0] if statuses else {})


def _statuses(pod: Object) -> list[Object]:
    return [one for one in pod.get("status", {}).get("initContainerStatuses") or [] if is_download(one["name"])]


def _written_pins(pool: RewardPool, objects: Objects) -> dict[str, str]:
    files = objects.find("ConfigMap", names.pins_config_map(pool.metadata.name)) or {}
    try:
        pins = json.loads((files.get("data") or {}).get(names.PINS_FILE, "{}"))
    except NONSENSE:
        # Edited by hand; what the pods report puts it right.
        return {}
    written = pins.items() if isinstance(pins, dict) else ()
    return {revision: pinned for revision, commit in written if (pinned := commit_of(commit)) is not None}

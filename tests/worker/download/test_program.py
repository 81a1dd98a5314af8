"""The program as a pod runs it: mounted files, processes that are killed, and the report they leave."""

import itertools
import json
import os
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support.downloads import FILES, REPO
from support.fake_hub import FakeHub
from support.processes import RealProcess

from rewardpool_worker.diagnosis import diagnose
from rewardpool_worker.mounted import write_worker_zip

pytestmark = pytest.mark.real

SECONDS = 30.0
CHUNK = 10 * 1024 * 1024
"""The library hands on what it reads in pieces of this size."""
LARGE = 2 * CHUNK


class Pod:
    """One pod's download: a process, its link and its report."""

    def __init__(
        self,
        tmp_path: Path,
        hub: FakeHub,
        name: str,
        port: int,
        source: str = f"hf://{REPO}",
        then: tuple[str, ...] = (),
    ) -> None:
        self.link = tmp_path / name / "current"
        self.link.parent.mkdir(exist_ok=True)
        self.report_file = tmp_path / name / "report"
        argv = [
            sys.executable,
            str(write_worker_zip(tmp_path)),
            "download.program",
            "--source",
            source,
            "--revision",
            "main",
        ]
        argv += ["--host", "127.0.0.1", "--port", str(port)]
        argv += ["--cache", str(tmp_path / "cache"), "--link", str(self.link), "--report", str(self.report_file)]
        argv += ["--pins", str(tmp_path / "pins.json"), "--then", *then]
        env = {"HF_ENDPOINT": hub.url, "REWARDPOOL_REVISION": "r1"}
        self.process = RealProcess(argv, log=tmp_path / f"{name}.log", env=env, cwd=tmp_path)

    @property
    def report(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.report_file.read_text())
        return told


def bytes_there(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in tmp_path.glob("cache/*/blobs/*"))


def test_a_download_that_was_killed_is_gone_on_with(hub: FakeHub, tmp_path: Path, free_port: int) -> None:
    weights = os.urandom(LARGE)
    hub.model(REPO, {**FILES, "model.safetensors": weights})
    hub.hold_after = CHUNK + 1_000_000
    with Pod(tmp_path, hub, "first", free_port).process as first:
        first.until(lambda: bytes_there(tmp_path) >= CHUNK, seconds=SECONDS, what="a part is there")
        first.signal(signal.SIGKILL)
        assert first.exit_code(seconds=SECONDS) == -signal.SIGKILL
    hub.hold_after = None
    there = max(path.stat().st_size for path in tmp_path.glob("cache/*/blobs/*.incomplete"))
    second = Pod(tmp_path, hub, "first", free_port)
    with second.process as process:
        assert process.exit_code(seconds=SECONDS) == 0
    assert (second.link / "model.safetensors").read_bytes() == weights
    assert [asked for path, asked in hub.asked if "safetensors" in path] == ["", f"bytes={there}-"]


def test_who_waits_tells_the_holders_progress_and_takes_over_when_it_dies(
    hub: FakeHub, tmp_path: Path, free_port: int
) -> None:
    weights = os.urandom(LARGE)
    hub.model(REPO, {**FILES, "model.safetensors": weights})
    hub.hold_after = CHUNK + 1_000_000
    second = Pod(tmp_path, hub, "second", free_port)

    def told() -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/rewardpool/download", timeout=5) as answer:
            state: dict[str, Any] = json.load(answer)
        return state

    def waits_and_tells() -> bool:
        try:
            state = told()
        except OSError:
            return False
        return state["phase"] == "Waiting" and state["downloadedBytes"] >= CHUNK

    with Pod(tmp_path, hub, "first", 0).process as first:
        first.until(lambda: bytes_there(tmp_path) >= CHUNK, seconds=SECONDS, what="a part is there")
        with second.process as waiting:
            waiting.until(waits_and_tells, seconds=SECONDS, what="the second one waits")
            assert told()["totalBytes"] == len(weights) + len(FILES["config.json"])
            hub.hold_after = None
            first.signal(signal.SIGKILL)
            assert waiting.exit_code(seconds=SECONDS) == 0
    assert second.report["commit"] == hub.repos[REPO].main
    assert hub.asked[-1][1] == f"bytes={CHUNK}-"


def test_a_pin_is_found_by_the_workers_revision(hub: FakeHub, tmp_path: Path) -> None:
    first = hub.repos[REPO].main
    hub.repos[REPO].push({**FILES, "config.json": b'{"new": 1}'})
    (tmp_path / "pins.json").write_text(json.dumps({"r1": first, "r2": hub.repos[REPO].main}))
    pod = Pod(tmp_path, hub, "pod", 0)
    with pod.process as process:
        assert process.exit_code(seconds=SECONDS) == 0
    assert pod.report == {"commit": first, "bytes": 10_242, "files": 2}


def test_the_report_of_a_failure_has_reason_and_advice(hub: FakeHub, tmp_path: Path) -> None:
    pod = Pod(tmp_path, hub, "pod", 0, source="hf://org/other")
    with pod.process as process:
        assert process.exit_code(seconds=SECONDS) == 1
    assert pod.report["reason"] == "ModelNotFound"
    assert "spec.model.source" in pod.report["message"]


def test_on_one_machine_the_download_becomes_the_engine_unless_a_file_was_changed(hub: FakeHub, tmp_path: Path) -> None:
    says = "import os, sys; print(os.environ['HF_HUB_OFFLINE'], os.listdir(sys.argv[1]))"
    link = tmp_path / "pod" / "current"
    engine = (sys.executable, "-c", says, str(link))
    with Pod(tmp_path, hub, "pod", 0, then=engine).process as process:
        assert process.exit_code(seconds=SECONDS) == 0
    log = tmp_path / "pod.log"
    assert log.read_text().splitlines()[-1] in [f"1 {list(names)}" for names in itertools.permutations(FILES)]
    (link / "model.safetensors").resolve().write_bytes(bytes(len(FILES["model.safetensors"])))
    log.unlink()
    with Pod(tmp_path, hub, "pod", 0, then=engine).process as process:
        assert process.exit_code(seconds=SECONDS) == 1
    found = diagnose(exit_code=1, log=log.read_text())
    assert found.reason == "CacheChanged"
    assert found.message.startswith("model.safetensors in models--org--rm of the cache: not what was downloaded")


def test_a_pod_that_is_deleted_gives_the_lock_back(hub: FakeHub, tmp_path: Path) -> None:
    hub.hold_after = 1000
    with Pod(tmp_path, hub, "pod", 0).process as process:
        process.until(lambda: bool(list(tmp_path.glob("cache/*/rewardpool/holder.json"))), seconds=SECONDS, what="held")
        process.signal(signal.SIGTERM)
        assert process.exit_code(seconds=SECONDS) == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("cache/*/rewardpool/holder.json"))

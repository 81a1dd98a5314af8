"""A ledger whose files are moved to S3, which may refuse or hang: scoring goes on."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.object_store import object_store, use

from rewardpool import ConfigError, Reward
from rewardpool._rewards.ledger import config, s3

TARGET = "s3://ledgers/team/run"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with object_store(monkeypatch, bucket="ledgers") as client:
        yield client


def length(solution_str: str, **_: Any) -> float:
    return float(len(solution_str))


def by_length(folder: Path, **ledger: Any) -> Reward:
    return Reward(length, run_in="threads", ledger={"folder": folder, "upload": TARGET, **ledger})


def score(reward: Reward, *sizes: int) -> None:
    """Score a response of each size, with its record in the ledger before the next one."""
    for size in sizes:
        assert reward(["?"], ["a" * size]) == [size]
        reward._opened().flush_ledger()


def test_full_files_and_the_last_one_are_objects_and_leave_the_folder(tmp_path: Path, store: Any) -> None:
    with by_length(tmp_path, text=True, file_mib=1) as reward:
        score(reward, 1_200_000, 1_300_000, 3)
    keys = sorted(one["Key"] for one in store.list_objects_v2(Bucket="ledgers", Prefix="team/run/")["Contents"])
    bodies = [store.get_object(Bucket="ledgers", Key=key)["Body"].read() for key in keys]
    assert [json.loads(line)["score"] for body in bodies for line in body.splitlines()] == [1_200_000, 1_300_000, 3]
    assert len(keys) == 3
    assert list(tmp_path.iterdir()) == []


def test_ledgers_of_one_process_and_second_keep_each_others_objects(
    tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as stopped:
        stopped.setattr(time, "strftime", lambda *_: "20260102T030405")
        for size in (1, 2):
            with by_length(tmp_path, upload="s3://ledgers/one-second") as reward:
                score(reward, size)
    assert len(store.list_objects_v2(Bucket="ledgers", Prefix="one-second/")["Contents"]) == 2


@pytest.mark.usefixtures("store")
def test_a_store_that_refuses_stops_the_ledger_and_no_score(tmp_path: Path) -> None:
    with by_length(tmp_path, text=True, file_mib=1, upload="s3://no-ledgers") as reward:
        score(reward, 1_200_000, 3, 4)
        found = reward.ledger
    assert found is not None
    assert (found.records, found.left_out) == (1, 2)
    assert found.stopped is not None
    assert found.stopped.startswith("s3://no-ledgers takes no file: ")
    assert "NoSuchBucket" in found.stopped
    [kept] = tmp_path.iterdir()
    assert json.loads(kept.read_text())["score"] == 1_200_000


def test_a_store_that_hangs_stops_the_ledger_and_no_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "seconds_for", lambda mib: 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        use(monkeypatch, "http://{}:{}".format(*silent.getsockname()))
        with by_length(tmp_path, text=True, file_mib=1) as reward:
            score(reward, 1_200_000, 3, 4)
            found = reward.ledger
    assert found is not None
    assert (found.records, found.left_out) == (1, 2)
    assert found.stopped == f"{TARGET} takes longer than 0.3 s for a file"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_upload_without_boto3_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"reward\.ledger\.upload.*takes boto3: pip install"):
        by_length(tmp_path)


@pytest.mark.parametrize("target", ["/data", "s3://", "s3://B/x", "https://ledgers/x", "s3://ledgers//x"])
def test_an_upload_to_no_bucket_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(ConfigError, match=r"reward\.ledger\.upload"):
        by_length(tmp_path, upload=target)

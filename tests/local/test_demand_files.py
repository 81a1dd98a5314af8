"""What is made of the files by which jobs on this machine announce their demand."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rewardpool._demand.writers import FileWriter
from rewardpool_api.demand import LEASE_SECONDS, Demand
from rewardpool_control.announcements import MOST, RETENTION
from rewardpool_local.demand_files import MAX_FILE_BYTES, DemandFiles
from rewardpool_local.folder import PoolFolder

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Folder:
    """A pool's folder with its demands."""

    def __init__(self, path: Path) -> None:
        self.pool = PoolFolder(path)
        self.pool.create()
        self.files = DemandFiles(self.pool.demands)

    def write(self, job: str = "grpo", *, at: datetime = NOW, text: str | None = None, **fields: Any) -> Path:
        demand = {"job": job, "phase": "Rollout", **fields}
        path = self.pool.demands / f"{job}.json"
        unfinished = path.with_suffix(".part")
        unfinished.write_text(text if text is not None else json.dumps({"leaseSeconds": 15, "demand": demand}))
        os.utime(unfinished, (at.timestamp(), at.timestamp()))
        unfinished.replace(path)
        return path

    def live(self, *, at: datetime = NOW) -> list[str]:
        return [one.name for one in self.files.observe(now=at) if one.is_live(at)]

    def problem(self) -> str:
        (one,) = self.files.observe(now=NOW)
        assert one.demand is None
        return one.problem or ""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "rl" / "rm")


def test_the_folder_is_its_owners_alone(folder: Folder) -> None:
    assert folder.pool.demands.stat().st_mode & 0o777 == 0o700


def test_a_job_is_live_until_it_does_not_renew_its_file(folder: Folder) -> None:
    folder.write()
    assert folder.live(at=NOW + 14 * SECOND) == ["grpo.json"]
    folder.write(at=NOW + 14 * SECOND)
    assert folder.live(at=NOW + 20 * SECOND) == ["grpo.json"]
    assert folder.live(at=NOW + 35 * SECOND) == []


async def test_what_a_trainer_writes_is_what_is_read(folder: Folder) -> None:
    demand = Demand(job="grpo", phase="Update", samples=64, starts_in_seconds=12.5, stalled=True)
    await FileWriter(folder.pool.path).write(demand)
    (heard,) = folder.files.observe(now=datetime.now(UTC))
    assert (heard.demand, heard.seconds, heard.note) == (demand, LEASE_SECONDS, "")


def test_a_file_is_read_again_only_when_it_was_replaced(folder: Folder) -> None:
    folder.write()
    (first,), (again,) = folder.files.observe(now=NOW), folder.files.observe(now=NOW)
    assert again.demand is first.demand
    folder.write(phase="Update")
    (changed,) = folder.files.observe(now=NOW)
    assert changed.demand is not None
    assert changed.demand.phase == "Update"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON"),
        ("[" * 5000, "no JSON"),
        ("[]", 'no object with an entry "demand"'),
        ('{"demand": 1}', "it: "),
        ('{"demand": {"job": "grpo", "phase": "Rollout", "startsInSeconds": NaN}}', "startsInSeconds: "),
        ('{"demand": {"job": "other", "phase": "Rollout"}}', "job: the file of job other is called other.json"),
        (" " * (MAX_FILE_BYTES + 1), f"more than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_nonsense_is_told_with_what_is_wrong(folder: Folder, text: str, problem: str) -> None:
    folder.write(text=text)
    assert problem in folder.problem()


def test_a_file_that_does_not_say_how_long_it_lasts_lasts_as_long_as_usual(folder: Folder) -> None:
    folder.write(text='{"demand": {"job": "grpo", "phase": "Rollout"}}')
    (one,) = folder.files.observe(now=NOW)
    assert (one.seconds, one.problem) == (15, None)
    assert one.note


def test_what_is_no_plain_file_or_half_written_is_passed_over(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (folder.pool.demands / "link.json").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder.pool.demands / "pipe.json")
    (folder.pool.demands / "folder.json").mkdir()
    (folder.pool.demands / ".grpo.json.part").write_text("{")
    assert folder.files.observe(now=NOW) == ()


def test_no_more_count_than_the_status_can_show(folder: Folder) -> None:
    for number in range(MOST + 1):
        folder.write(f"job-{number:02}")
    assert len(folder.live()) == MOST


def test_a_pool_of_an_older_version_has_no_such_folder(tmp_path: Path) -> None:
    assert DemandFiles(tmp_path / "demands").observe(now=NOW) == ()


def test_a_folder_that_cannot_be_read_ends_nothing_at_once(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "no")

    folder.write()
    folder.live()
    monkeypatch.setattr(os, "scandir", refuse)
    assert folder.live(at=NOW + 5 * SECOND) == ["grpo.json"]
    assert folder.live(at=NOW + 15 * SECOND) == []
    assert caplog.text.count("demands cannot be read") == 1


def test_what_is_over_is_removed_unless_it_was_renewed_since_the_look(folder: Folder) -> None:
    ended, old, renewed = folder.write("ended", phase="Ended"), folder.write("old"), folder.write("renewed")
    lapsed = folder.write("lapsed", at=NOW + RETENTION)
    late = NOW + RETENTION + 16 * SECOND
    folder.files.observe(now=late)
    folder.write("renewed", at=late)
    folder.files.remove_old(now=late)
    assert [path.exists() for path in (ended, old, lapsed, renewed)] == [False, False, True, True]

"""The ledger: a record a score, and nothing that goes wrong in it reaches the scoring."""

import errno
import functools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_worker import FakeWorker
from support.local_pool import POOL, on_this_machine, write_local_pool

from rewardpool import ConfigError, Episode, FunctionFailedError, LedgerReport, Reward, UnscoredError
from rewardpool._rewards.ledger import config, writer
from rewardpool._rewards.ledger.config import LedgerConfig
from rewardpool._rewards.ledger.parquet import ABANDONED_SECONDS
from rewardpool._rewards.ledger.record import LedgerEntry, LedgerScorer, judge_hash, line_of
from rewardpool._rewards.ledger.writer import Ledger
from rewardpool._rewards.open import open_reward
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.reward_function import PartScore

SCORER = LedgerScorer(part="length", commits={})


def length(solution_str: str, **_: Any) -> float:
    if solution_str == "boom":
        raise ValueError("no")
    return float(len(solution_str))


def by_length(ledger: Any) -> Reward:
    return Reward(length, run_in="threads", ledger=ledger)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def once(reward: Reward, is_so: Callable[[LedgerReport], bool]) -> LedgerReport:
    """The report of a reward's ledger, when it says what is waited for, within 30 s."""
    deadline = time.monotonic() + 30
    while (found := reward.ledger) is None or not is_so(found):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the ledger's last report is {found}")
        threading.Event().wait(0.01)
    return found


def has_records(count: int, report: LedgerReport) -> bool:
    return report.records == count


def test_without_the_key_there_is_none() -> None:
    with Reward(length, run_in="threads") as reward:
        reward(["?"], ["a"])
        assert reward.ledger is None


def test_every_score_has_a_record_without_its_text(tmp_path: Path) -> None:
    with by_length(tmp_path) as reward:
        reward(["secret prompt", "secret prompt", "other"], ["aa", "bbb", "aa"])
    first, second, third = sorted(records(tmp_path), key=lambda one: one["id"])
    assert [one["score"] for one in (first, second, third)] == [2.0, 3.0, 2.0]
    assert first["prompt_hash"] == second["prompt_hash"] != third["prompt_hash"]
    assert len({one["response_hash"] for one in (first, second, third)}) == 3
    assert (first["part"], first["pool"]) == ("length", None)
    assert first["seconds"] > 0
    assert "secret" not in json.dumps([first, second, third])


def test_what_failed_has_its_fault_and_no_number(tmp_path: Path) -> None:
    with by_length(tmp_path) as reward, pytest.raises(UnscoredError):
        reward(["?", "!"], ["a", "boom"])
    [failed] = [one for one in records(tmp_path) if one["score"] is None]
    assert (failed["fault"], failed["kind"], failed.get("problem")) == ("verifier", "function_failed", None)


def test_texts_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "?"}]
    with by_length({"folder": tmp_path, "text": True}) as reward, pytest.raises(UnscoredError):
        reward([messages, "?"], ["a", "boom"], ground_truth=["4", None], extra_info={"level": 1})
    scored, failed = sorted(records(tmp_path), key=lambda one: one["score"] is None)
    assert (scored["prompt"], scored["response"], scored["ground_truth"]) == (messages, "a", "4")
    assert scored["extra_info"] == {"level": 1}
    assert "ValueError: no" in failed["problem"]


async def test_a_pools_record_has_its_revision_and_commit_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    key = tmp_path / "key"
    key.write_text("key-of-the-router")
    model = {"revision": "5f1c0de5", "source": "hf://org/model", "commit": "c0ffee", "servedName": "skywork"}
    async with FakeWorker(revision="5f1c0de5") as worker:
        folder = write_local_pool(tmp_path, url=worker.url, model_type="Function", revisions=[model])
        (folder / "key").write_text("key-of-the-router")
        worker.name = "skywork-0"
        async with open_reward({"pool": POOL, "ledger": tmp_path / "ledger"}) as reward:
            await reward.rate(Episode(prompt="?", response="a", id="one"))
    [record] = records(tmp_path / "ledger")
    assert (record["pool"], record["revisions"], record["commit"]) == (POOL, ["5f1c0de5"], "c0ffee")
    assert (record["attempts"], record["workers"]) == (1, ["skywork-0"])
    assert "key-of-the-router" not in json.dumps(record)


def test_a_judge_is_known_by_what_it_is_asked_and_not_by_its_seed() -> None:
    one = JudgeConfig(range=(1, 10))
    assert judge_hash(one) == judge_hash(one.model_copy(update={"seed": 7}))
    assert judge_hash(one) != judge_hash(JudgeConfig(range=(1, 5)))


def test_a_share_keeps_all_responses_to_a_prompt_or_none(tmp_path: Path) -> None:
    prompts = [f"prompt {number}" for number in range(200) for _ in range(2)]
    with by_length({"folder": tmp_path, "share": 0.25}) as reward:
        reward(prompts, ["a", "bb"] * 200)
    kept = [one["prompt_hash"] for one in records(tmp_path)]
    assert {kept.count(one) for one in kept} == {2}
    assert 20 < len(set(kept)) < 80


def test_a_full_file_is_followed_by_another(tmp_path: Path) -> None:
    with by_length({"folder": tmp_path, "text": True, "file_mib": 1}) as reward:
        for number in range(3):
            reward([f"{number}"], ["a" * 1_200_000])
            once(reward, functools.partial(has_records, number + 1))
    assert [len(path.read_text().splitlines()) for path in sorted(tmp_path.iterdir())] == [1, 1, 1]


@pytest.mark.parametrize(("seconds", "is_left"), [(ABANDONED_SECONDS + 60, False), (0.0, True)])
def test_the_unfinished_file_of_a_killed_process_is_removed_and_no_others(
    tmp_path: Path, seconds: float, is_left: bool
) -> None:
    unfinished = tmp_path / "one.part"
    for path in (unfinished, tmp_path / "one.jsonl", tmp_path / "model.part"):
        path.touch()
        os.utime(path, times=(time.time() - seconds,) * 2)
    with Ledger(LedgerConfig(folder=tmp_path)) as ledger:
        add(ledger, "a")
    assert unfinished.exists() is is_left
    assert (tmp_path / "model.part").exists()


def stopped(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "the ledger in" in one.getMessage()]


def test_a_folder_that_cannot_be_made_stops_the_ledger_and_no_score(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with by_length(tmp_path / "file" / "ledger") as reward, caplog.at_level(logging.WARNING):
        assert reward(["?"], ["aa"]) == [2.0]
        found = once(reward, lambda report: report.stopped is not None)
        assert (found.records, found.left_out, found.stopped) == (0, 1, "Not a directory")
        assert reward(["?", "?"], ["aa", "b"]) == [2.0, 1.0]
        assert once(reward, lambda report: report.left_out == 3).records == 0
    [said] = stopped(caplog)
    assert said.endswith("stops: Not a directory; scoring goes on without it")


def test_a_full_disk_stops_the_ledger_and_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, room = os.pwrite, [1000]

    def pwrite(fd: int, data: bytes, at: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        written = real(fd, data[: room[0]], at)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", pwrite)
    with Ledger(LedgerConfig(folder=tmp_path)) as ledger, caplog.at_level(logging.WARNING):
        for number in range(100):
            add(ledger, f"{number}")
    report = ledger.report()
    assert report.stopped == "No space left on device"
    assert report.records + report.left_out == 100
    assert len(records(tmp_path)) == report.records
    assert len(stopped(caplog)) == 1


def add(ledger: Ledger, response: str, name: str = "one") -> None:
    episode = Episode(prompt="?", response=response, id=name)
    ledger.add(SCORER, episode, PartScore(1.0), seconds=0.1, revisions=())


class Odd:
    """What no encoder of JSON knows."""

    def __repr__(self) -> str:
        return "odd \ud800"


class Mute:
    """What cannot even be described."""

    def __repr__(self) -> str:
        raise ValueError("no words")


def test_an_episode_that_cannot_be_described_is_left_out_and_the_next_one_has_its_record(tmp_path: Path) -> None:
    with Ledger(LedgerConfig(folder=tmp_path)) as ledger:
        odd = Episode(prompt="?", response="a", id=Mute())  # type: ignore[arg-type]
        ledger.add(SCORER, odd, PartScore(1.0), seconds=0.1, revisions=())
        add(ledger, "a")
    assert (ledger.report().left_out, ledger.report().stopped) == (1, None)
    assert [one["id"] for one in records(tmp_path)] == ["one"]


@pytest.mark.parametrize("many", [1, 1500])
def test_records_are_in_the_order_of_their_scores(tmp_path: Path, many: int) -> None:
    with Ledger(LedgerConfig(folder=tmp_path)) as ledger:
        for number in range(many):
            add(ledger, str(number), name=str(number))
    assert [one["id"] for one in records(tmp_path)] == [str(number) for number in range(many)]


@pytest.mark.parametrize("field", ["extra_info", "ground_truth", "turns", "prompt"])
def test_a_record_says_what_was_scored_though_the_episode_is_changed_afterwards(tmp_path: Path, field: str) -> None:
    message = {"role": "user", "content": "before"}
    value = message if field in ("extra_info", "ground_truth") else [message]
    with Ledger(LedgerConfig(folder=tmp_path, text=True)) as ledger:
        episode = Episode(**{"prompt": "?", "response": "a", field: value})
        ledger.add(SCORER, episode, PartScore(1.0), seconds=0.1, revisions=())
        message["content"] = "after"
    assert "before" in json.dumps(records(tmp_path))
    assert "after" not in json.dumps(records(tmp_path))


def test_lines_beyond_what_may_wait_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_WAITING_BYTES", 1)
    ledger = Ledger(LedgerConfig(folder=tmp_path))
    add(ledger, "a")
    add(ledger, "b")
    with ledger:
        pass
    assert (ledger.report().records, ledger.report().left_out) == (1, 1)


VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.builds(Odd) | st.just({1, 2}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, st.dictionaries(st.text(), VALUES, max_size=2), st.text(st.characters()))
def test_whatever_a_row_says_becomes_one_line(truth: Any, info: Mapping[str, Any], response: str) -> None:
    episode = Episode(prompt=response, response=response, ground_truth=truth, extra_info=info, group=(1, "a"))
    for outcome in (PartScore(1.0, {"x": Odd()}), FunctionFailedError("one", f"failed: {response}")):
        line = line_of(LedgerEntry(0.0, SCORER, episode, outcome, 0.1, (), ()), text=True)
        assert line.count(b"\n") == 1
        assert isinstance(json.loads(line), dict)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "half \ud800"},
        {"prompt": [{"role": "user", "content": "half \ud800"}]},
        {"extra_info": {"tags": {"a"}}},
        {"ground_truth": Odd()},
        {"ground_truth": 2**70},
    ],
)
def test_what_json_cannot_hold_is_not_kept_in_another_form(row: dict[str, Any]) -> None:
    episode = Episode(**{"prompt": "?", "response": "a", **row})
    record = json.loads(line_of(LedgerEntry(0.0, SCORER, episode, PartScore(1.0), 0.1, (), ()), text=True))
    assert record["score"] == 1.0
    assert not record.keys() & {"prompt", "response", "extra_info", "ground_truth"}


def test_parquet_without_pyarrow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"reward\.ledger\.format.*takes pyarrow: pip install"):
        by_length({"folder": tmp_path, "format": "parquet"})


@pytest.mark.parametrize(
    ("ledger", "field"),
    [
        ({"share": 0.5}, r"reward\.ledger\.folder"),
        ({"folder": "x", "share": 0}, r"reward\.ledger\.share"),
        ({"folder": "x", "shares": 1}, r"reward\.ledger\.shares: unknown key; did you mean share\?"),
    ],
)
def test_a_wrong_field_is_named(ledger: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        by_length(ledger)

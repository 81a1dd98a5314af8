"""Whole files, scored by functions of this process and by a FakeWorker."""

import asyncio
import functools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import scored_file
from support.fake_worker import FakeWorker
from support.local_pool import POOL, on_this_machine, write_local_pool

from rewardpool import ConfigError, FileReport, LedgerReport, PoolError, Reward
from rewardpool._files.forms import FileRow
from rewardpool._files.journal import Journal
from rewardpool._files.progress import FileProgress, Lines, RateMeter, Show, silent
from rewardpool._files.results import fault_of, record_of
from rewardpool._files.score import identity_of, score_file
from rewardpool._files.source import open_source
from rewardpool._rewards.config import parse_reward
from rewardpool._rewards.lazy import LazyReward
from rewardpool._rewards.rating import Rating
from rewardpool.errors import ScoreError


def length(solution_str: str, **_: Any) -> float:
    if solution_str == "boom":
        raise ValueError("no")
    return float(len(solution_str))


def by_length(**settings: Any) -> Reward:
    return Reward(length, run_in="threads", **settings)


def written(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def singles(count: int) -> list[dict[str, Any]]:
    return [{"prompt": "?", "response": "a" * row, "id": f"r{row}"} for row in range(count)]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_row_has_its_score_in_the_order_of_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with by_length() as reward:
        report = reward.score_file(written(tmp_path, singles(300)), out, window=7)
    assert [(one["row"], one["id"], one["score"]) for one in lines(out)] == [
        (row, f"r{row}", float(row)) for row in range(300)
    ]
    assert (report.rows, report.before, report.scored, report.is_complete) == (300, 0, 300, True)
    assert not (tmp_path / "out.jsonl.journal").exists()


@pytest.mark.parametrize("on_failure", ["raise", "skip"])
def test_a_row_without_a_score_has_its_fault_and_no_number(tmp_path: Path, on_failure: str) -> None:
    rows = [{"prompt": "?", "response": text} for text in ("a", "boom", "bb")]
    with by_length(on_failure=on_failure) as reward:
        report = reward.score_file(written(tmp_path, rows), tmp_path / "out.jsonl")
    good, bad, other = lines(tmp_path / "out.jsonl")
    assert (good["score"], bad["score"], other["score"]) == (1.0, None, 2.0)
    assert (bad["fault"], bad["kind"]) == ("verifier", "function_failed")
    assert "ValueError: no" in bad["problem"]
    assert (report.scored, report.unscored, report.is_complete) == (2, {"verifier": 1}, False)


def test_a_ledger_that_stops_is_told_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "full").touch()
    with by_length(ledger=tmp_path / "full" / "ledger") as reward:
        report = reward.score_file(written(tmp_path, singles(3)), tmp_path / "out.jsonl")
    assert report.scored == 3
    assert report.ledger == LedgerReport(records=0, left_out=3, stopped="Not a directory")


def test_the_report_counts_every_record_of_the_ledger(tmp_path: Path) -> None:
    with by_length(ledger=tmp_path / "ledger") as reward:
        report = reward.score_file(written(tmp_path, singles(3)), tmp_path / "out.jsonl")
    assert report.ledger == LedgerReport(records=3)


def test_no_penalty_stands_for_the_score_of_a_row() -> None:
    error = ScoreError("#0", "too long", fault="policy")
    rating = Rating(total=-1.0, components={"length": None}, error=error)
    record = record_of(FileRow(number=0, episodes={}, carried={}), {"response": rating})
    assert (record["score"], fault_of(record)) == (None, "policy")


def test_both_answers_of_a_pair_are_scored(tmp_path: Path) -> None:
    rows = [{"prompt": "?", "chosen": "aaa", "rejected": "b"}, {"prompt": "?", "chosen": "aaa", "rejected": "boom"}]
    with by_length(on_failure="skip") as reward:
        report = reward.score_file(written(tmp_path, rows), tmp_path / "out.jsonl")
    first, second = lines(tmp_path / "out.jsonl")
    assert (first["chosen"]["score"], first["rejected"]["score"]) == (3.0, 1.0)
    assert (second["chosen"]["score"], second["rejected"]["score"]) == (3.0, None)
    assert report.unscored == {"verifier": 1}


def test_a_reward_that_compares_takes_pairs_and_refuses_single_rows(tmp_path: Path) -> None:
    with by_length(normalize="group") as reward:
        with pytest.raises(ConfigError, match="compares the responses to a prompt"):
            reward.score_file(written(tmp_path, singles(2)), tmp_path / "out.jsonl")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]
        rows = [{"prompt": "?", "chosen": "aaa", "rejected": "b"}]
        reward.score_file(written(tmp_path, rows), tmp_path / "out.jsonl")
    [pair] = lines(tmp_path / "out.jsonl")
    assert pair["chosen"]["score"] == pytest.approx(-pair["rejected"]["score"])


def test_an_output_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    with by_length() as reward, pytest.raises(ConfigError, match=r"--out: .* exists already"):
        reward.score_file(written(tmp_path, singles(2)), out)
    assert out.read_text() == "mine"


def test_a_file_with_one_bad_row_is_refused_before_anything_is_scored(tmp_path: Path) -> None:
    asked = []

    def noted(solution_str: str, **_: Any) -> float:
        asked.append(solution_str)
        return 0.0

    rows = [*singles(3), {"prompt": "?", "response": None}]
    with Reward(noted, run_in="threads") as reward, pytest.raises(ConfigError, match="line 4: response is None"):
        reward.score_file(written(tmp_path, rows), tmp_path / "out.jsonl")
    assert asked == []


def interrupted_after(rows: int, file: Path, out: Path, *, done: list[str]) -> None:
    """Score until so many rows are done, and then as Ctrl-C ends it."""

    def noted(solution_str: str, **_: Any) -> float:
        done.append(solution_str)
        return length(solution_str)

    def show(progress: FileProgress) -> None:
        if progress.done >= rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scored(noted, file, out, show=show)


def scored(function: Callable[..., float], file: Path, out: Path, *, show: Show = silent) -> FileReport:
    lazy = LazyReward({"function": function, "run_in": "threads", "name": "length"}, who=None)
    try:
        return score_file(lazy.opened, open_source(file), out, about={"by": "length"}, window=8, show=show)
    finally:
        lazy.close(for_good=True)


def test_a_run_that_was_interrupted_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    file, out = written(tmp_path, singles(100)), tmp_path / "out.jsonl"
    first: list[str] = []
    interrupted_after(20, file, out, done=first)
    assert not out.exists()
    again: list[str] = []

    def noted(solution_str: str, **_: Any) -> float:
        again.append(solution_str)
        return length(solution_str)

    report = scored(noted, file, out)
    assert [one["score"] for one in lines(out)] == [float(row) for row in range(100)]
    assert 20 <= report.before <= len(first)
    assert len(again) == 100 - report.before


def test_a_run_that_ended_between_the_output_and_its_journal_is_finished_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = written(tmp_path, singles(20)), tmp_path / "out.jsonl"

    def ends(journal: Journal) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "delete", ends)
        with pytest.raises(KeyboardInterrupt):
            scored(length, file, out)
    before = out.read_bytes()
    asked: list[str] = []

    def noted(solution_str: str, **_: Any) -> float:
        asked.append(solution_str)
        return 0.0

    assert scored(noted, file, out).before == 20
    assert (out.read_bytes(), asked, sorted(path.name for path in tmp_path.iterdir())) == (
        before,
        [],
        ["out.jsonl", "rows.jsonl"],
    )


def test_another_reward_does_not_go_on_with_what_one_has_begun(tmp_path: Path) -> None:
    file, out = written(tmp_path, singles(100)), tmp_path / "out.jsonl"
    interrupted_after(20, file, out, done=[])
    with by_length(weight=2.0) as reward, pytest.raises(ConfigError, match="was begun with the reward by length"):
        reward.score_file(file, out)


def test_a_changed_file_does_not_go_on_with_what_was_begun(tmp_path: Path) -> None:
    file, out = written(tmp_path, singles(100)), tmp_path / "out.jsonl"
    interrupted_after(20, file, out, done=[])
    written(tmp_path, singles(101))
    with pytest.raises(ConfigError, match="was begun with the input sha256"):
        scored(length, file, out)


def test_a_file_that_is_changed_in_place_while_it_is_scored_gives_no_output(tmp_path: Path) -> None:
    file, out = written(tmp_path, singles(3)), tmp_path / "out.jsonl"

    def changes(solution_str: str, **_: Any) -> float:
        written(tmp_path, [*singles(2), {"prompt": "?", "response": "other"}])
        return length(solution_str)

    with pytest.raises(ConfigError, match="was changed while it was scored"):
        scored(changes, file, out)
    assert not out.exists()


def test_a_pool_that_breaks_ends_the_run_and_keeps_what_is_scored(tmp_path: Path) -> None:
    file, out = written(tmp_path, singles(200)), tmp_path / "out.jsonl"

    def breaks(solution_str: str, **_: Any) -> float:
        if len(solution_str) > 20:
            raise ValueError("no more")
        return length(solution_str)

    with Reward(breaks, run_in="threads") as reward, pytest.raises(PoolError):
        reward.score_file(file, out, window=1)
    kept = lines(out.with_name("out.jsonl.journal"))[1:]
    assert [one["score"] for one in kept][:21] == [float(row) for row in range(21)]
    assert not out.exists()


def test_settings_of_the_client_may_change_between_two_runs() -> None:
    before = identity_of(parse_reward({"pool": "rl/a", "timeout": 5, "concurrency": 2}))
    assert before == identity_of(parse_reward({"pool": "rl/a", "timeout": 60, "on_failure": "raise"}))
    for other in ({"pool": "rl/b"}, {"pool": "rl/a", "adapter": "x"}, {"pool": "rl/a", "weight": 2.0}):
        assert before != identity_of(parse_reward(other))


class Scaled:
    """A function with settings, made anew by each process."""

    def __call__(self, solution_str: str, **_: Any) -> float:
        return length(solution_str)


@pytest.mark.parametrize(
    "made",
    [
        lambda: {"function": Scaled(), "name": "scaled"},
        lambda: {"function": functools.partial(length, level=Scaled()), "name": "scaled"},
        lambda: {"pool": "rl/a", "post_process": Scaled()},
    ],
)
def test_a_callable_that_is_made_anew_is_the_same_reward(made: Callable[[], dict[str, Any]]) -> None:
    kept = made()  # so that the other one has another address
    assert identity_of(parse_reward(kept)) == identity_of(parse_reward(made()))


def test_partials_with_other_arguments_are_other_rewards() -> None:
    one, other = (parse_reward({"function": functools.partial(length, level=n), "name": "length"}) for n in (1, 2))
    assert identity_of(one) != identity_of(other)


def has_lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


@pytest.mark.real
def test_a_process_that_is_killed_leaves_every_row_once_to_the_next_one(tmp_path: Path) -> None:
    # Takes some seconds: two processes, each of which imports the package.
    file, out = written(tmp_path, singles(400)), tmp_path / "out.jsonl"
    command = [sys.executable, scored_file.__file__, str(file), str(out)]
    process = subprocess.Popen([*command, "100"])  # the function never returns from the call after these
    deadline = time.monotonic() + 60
    while has_lines(out.with_name("out.jsonl.journal")) < 101:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    assert subprocess.run(command, check=False).returncode == 0
    assert [(one["row"], one["score"]) for one in lines(out)] == [(row, float(row)) for row in range(400)]


async def test_a_pool_scores_a_file_and_its_revisions_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with FakeWorker(revision="5f1c0de5") as worker:
        write_local_pool(tmp_path, url=worker.url, model_type="Function")
        file, out = written(tmp_path, singles(40)), tmp_path / "out.jsonl"
        with Reward(POOL) as reward:
            report = await asyncio.to_thread(reward.score_file, file, out)
    assert report.revisions == {POOL: {"5f1c0de5": 40}}
    assert {tuple(one["revisions"][POOL]) for one in lines(out)} == {("5f1c0de5",)}


def test_progress_has_the_rate_of_the_last_half_minute_and_the_time_left() -> None:
    now = [0.0]
    pace = RateMeter("scored", before=1000, total=10_000, clock=lambda: now[0])

    def shown(second: float, done: int, unscored: int = 0) -> str:
        now[0] = second
        return str(pace.progress(done, unscored=unscored))

    assert shown(0, 1000) == "scored 1,000 of 10,000 rows, 0 rows/s"
    assert shown(2, 1010) == "scored 1,010 of 10,000 rows, 5 rows/s"
    assert shown(10, 2000, 3) == "scored 2,000 of 10,000 rows, 100 rows/s, 3 without a score, 1 min 20 s left"
    assert shown(40, 5000) == "scored 5,000 of 10,000 rows, 100 rows/s, 50 s left"
    assert shown(50, 9000) == "scored 9,000 of 10,000 rows, 175 rows/s, 6 s left"


def test_lines_of_progress_begin_after_two_seconds_and_come_every_ten() -> None:
    now, said = [0.0], []
    show = Lines(said.append, clock=lambda: now[0])
    pace = RateMeter("scored", clock=lambda: 0.0)
    for second in range(25):
        now[0] = float(second)
        show(pace.progress(second))
    assert [line.split()[1] for line in said] == ["2", "12", "22"]

"""`rewardpool score FILE --out FILE` and a conversation given by options, over a FakeWorker on this machine."""

import asyncio
import json
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import CommandLine, rewardpool
from support.fake_worker import FakeWorker, right, says
from support.local_pool import POOL, on_this_machine, write_local_pool
from support.object_store import object_store

from rewardpool import ConfigError
from rewardpool._files.ledger import LedgerRecords
from rewardpool._files.score import identity_of
from rewardpool._rewards.config import parse_reward

__all__ = ["rewardpool"]


@pytest.fixture
async def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeWorker]:
    on_this_machine(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    async with FakeWorker() as running:
        write_local_pool(tmp_path, url=running.url, model_type="Function")
        yield running


def rows(count: int) -> None:
    write("rows.jsonl", "".join(json.dumps({"prompt": "?", "response": "a" * row}) + "\n" for row in range(count)))


def write(name: str, text: str) -> None:
    Path(name).write_text(text)


def add(name: str, text: str) -> None:
    with Path(name).open("a") as file:
        file.write(text)


def read(name: str) -> str:
    return Path(name).read_text()


def scores() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]


async def test_a_file_is_scored(worker: FakeWorker, rewardpool: CommandLine) -> None:
    rows(30)
    ended = await asyncio.to_thread(rewardpool, "score", "rows.jsonl", "--pool", POOL, "--out", "out.jsonl", "--json")
    assert ended.code == 0, ended.err
    report = json.loads(ended.out)
    assert (report["rows"], report["scored"], report["out"]) == (30, 30, "out.jsonl")
    assert [one["row"] for one in scores()] == list(range(30))


async def test_rows_without_a_score_end_the_command_with_1_and_are_told(
    tmp_path: Path, worker: FakeWorker, rewardpool: CommandLine
) -> None:
    rows(2)
    refused = says(json.dumps({"error": {"code": "function_failed", "message": "no", "fault": "verifier"}}))
    async with FakeWorker(afterwards=refused) as refusing:
        write_local_pool(tmp_path, url=refusing.url, model_type="Function")
        ended = await asyncio.to_thread(rewardpool, "score", "rows.jsonl", "--pool", POOL, "--out", "out.jsonl")
    assert ended.code == 1
    assert "without a score, by fault: verifier 2; their lines say why" in ended.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rows.jsonl",), "rows.jsonl is a file: give --out FILE to score its rows"),
        (("none.jsonl", "--out", "out.jsonl"), "none.jsonl: does not exist; give the path of a file"),
        (("rows.jsonl", "--out", "out.csv"), "--out: out.csv must end in .parquet"),
        (("rows.jsonl", "--out", "no/out.jsonl"), "--out: there is no folder no; make it"),
        (("rows.jsonl", "--out", "rows.jsonl"), "--out: rows.jsonl exists already; name another, or delete it"),
        (("rows.jsonl", "--out", "out.jsonl", "--prompt", "?"), "--out is for a file of rows"),
        (("rows.jsonl", "--out", "out.jsonl", "--ground-truth", "4"), "--ground-truth is for one text"),
        (("rows.jsonl", "--out", "out.jsonl", "--ignore", "x"), "rows.jsonl, line 1: there is no column x to ignore"),
        (("--out", "out.jsonl"), "--out is for a file of rows: name it"),
        (("text", "--ignore", "x"), "--ignore is for a file of rows"),
        ((), "say what to score: a text, --prompt with --response, --messages, or a file with --out"),
        (("--prompt", "?"), "say what to score"),
        (("text", "--prompt", "?"), "give a text, --prompt with --response, or --messages: one of the three"),
        (("--messages", "nonsense"), "--messages is not JSON"),
        (("--messages", "[]"), "--messages must be a list of two messages or more"),
    ],
)
async def test_what_does_not_fit_together_is_refused_before_a_request(
    worker: FakeWorker, rewardpool: CommandLine, arguments: tuple[str, ...], message: str
) -> None:
    rows(2)
    ended = await asyncio.to_thread(rewardpool, "score", *arguments, "--pool", POOL)
    assert (ended.code, worker.requests) == (2, [])
    assert message in ended.sentence


@pytest.mark.parametrize(
    "arguments",
    [
        ("--prompt", "2 + 2?", "--response", "4"),
        ("--messages", '[{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]'),
    ],
)
async def test_one_conversation_is_scored(
    worker: FakeWorker, rewardpool: CommandLine, arguments: tuple[str, ...]
) -> None:
    ended = await asyncio.to_thread(rewardpool, "score", *arguments, "--pool", POOL, "--ground-truth", "4", "--json")
    assert ended.code == 0, ended.err
    sent: dict[str, Any] = json.loads(worker.requests[0]["input"])
    assert (sent["solution_str"], sent["ground_truth"]) == ("4", "4")
    assert json.loads(ended.out)["score"] == float(len(worker.requests[0]["input"]))


async def test_a_reward_file_may_say_how_it_is_scored(worker: FakeWorker, rewardpool: CommandLine) -> None:
    rows(2)
    write("reward.yaml", f"pool: {POOL}\nweight: 0.0\n")
    ended = await asyncio.to_thread(
        rewardpool, "score", "rows.jsonl", "--reward", "reward.yaml", "--out", "out.jsonl", "--json"
    )
    assert ended.code == 0, ended.err
    assert [one["score"] for one in scores()] == [0.0, 0.0]


def pairs(*lengths: tuple[str, int, int]) -> None:
    made = [
        {"prompt": "?", "chosen": "c" * chosen, "rejected": "r" * rejected, "subset": subset, "id": row}
        | {"chosen_model": "x", "rejected_model": "y"}
        for row, (subset, chosen, rejected) in enumerate(lengths)
    ]
    write("pairs.jsonl", "".join(json.dumps(one) + "\n" for one in made))


async def test_eval_has_the_accuracy_by_subset(worker: FakeWorker, rewardpool: CommandLine) -> None:
    # A FakeWorker gives the length of what it is sent: the longer answer has the higher score.
    pairs(("chat", 5, 1), ("chat", 1, 5), ("safety", 5, 1), ("safety", 2, 2))
    command = ("eval", "pairs.jsonl", "--pool", POOL)
    ended = await asyncio.to_thread(rewardpool, *command, "-o", "json", "--out", "scores.jsonl")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["accuracy"], found["mean_of_subsets"], found["pairs"]) == (0.5, 0.5, 4)
    assert found["subsets"]["safety"] == {
        "accuracy": 0.5,
        "pairs": 2,
        "right": 1,
        "wrong": 0,
        "ties": 1,
        "unscored": 0,
    }
    table = (await asyncio.to_thread(rewardpool, *command)).out.splitlines()
    assert [line.split()[0] for line in table if line.strip()][:3] == ["subset", "chat", "safety"]
    assert table[1].split()[-1] == "50.0%"


async def test_eval_refuses_what_has_no_pairs(worker: FakeWorker, rewardpool: CommandLine) -> None:
    rows(2)
    ended = await asyncio.to_thread(rewardpool, "eval", "rows.jsonl", "--pool", POOL)
    assert (ended.code, worker.requests) == (2, [])
    assert "Accepted are prompt, chosen, rejected" in ended.sentence


def ledger_of(*records: dict[str, Any], torn: str = "") -> None:
    lines = [
        {"at": 1.0, "part": "length", "prompt_hash": "p", "response_hash": "r", "prompt": "?", **record}
        for record in records
    ]
    Path("ledger").mkdir()
    write("ledger/one.jsonl", "".join(json.dumps(line) + "\n" for line in lines) + torn)


def begun_with(out: str, source: LedgerRecords, *, rows: int) -> None:
    """Leave what a process that is killed after so many records has of an output."""
    checked = source.check()
    kept = read(out).splitlines(keepends=True)[:rows]
    about = identity_of(parse_reward({"on_failure": "skip", "pool": POOL}))
    head = {"sha256": checked.sha256, "rows": checked.rows, "form": checked.form.name, **source.extent()}
    write(f"{out}.journal", json.dumps({"journal": 1, "input": head, "reward": about}) + "\n" + "".join(kept))
    Path(out).unlink()


async def test_a_command_that_is_refused_is_not_said_to_go_on(worker: FakeWorker, rewardpool: CommandLine) -> None:
    rows(2)
    write("out.jsonl.journal", json.dumps({"journal": 1}) + "\n")
    ended = await asyncio.to_thread(rewardpool, "score", "rows.jsonl", "--pool", POOL, "--out", "out.jsonl")
    assert ended.code == 2
    assert "goes on" not in ended.err


@pytest.mark.parametrize("begun", ["[1]", '"x"', '{"files": 7}', '{"files": {"one.jsonl": "x"}}'])
async def test_a_journal_of_a_spoilt_input_is_refused_by_name(
    begun: str, worker: FakeWorker, rewardpool: CommandLine
) -> None:
    ledger_of({"response": "a", "score": 1.0})
    write("out.jsonl.journal", f'{{"journal": 1, "input": {begun}}}\n')
    ended = await asyncio.to_thread(rewardpool, "rescore", "ledger", "--pool", POOL, "--out", "out.jsonl")
    assert ended.code == 2
    assert "out.jsonl.journal" in ended.sentence
    assert "was begun with the input" in ended.sentence


async def test_rescore_compares_raw_scores(worker: FakeWorker, rewardpool: CommandLine) -> None:
    ledger_of({"response": "a", "score": 1.0}, {"response": "aaa", "score": 3.0})
    write("reward.yaml", f"pool: {POOL}\nweight: -1.0\n")
    ended = await asyncio.to_thread(rewardpool, "rescore", "ledger", "--reward", "reward.yaml", "-o", "json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["kendall"] == 1.0


async def test_rescore_says_how_the_scores_agree(worker: FakeWorker, rewardpool: CommandLine) -> None:
    # A FakeWorker gives the length of what it is sent: longer responses have higher scores.
    ledger_of(
        {"response": "a", "score": 1.0}, {"response": "aaa", "score": 3.0}, {"response": "aa", "score": None}, torn="{"
    )
    command = ("rescore", "ledger", "--pool", POOL)
    ended = await asyncio.to_thread(rewardpool, *command, "-o", "json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["rows"], found["both"], found["gained"], found["pairs"], found["kendall"]) == (3, 2, 1, 1, 1.0)
    failed = await asyncio.to_thread(rewardpool, *command, "--failed-only", "-o", "json")
    assert json.loads(failed.out)["rows"] == 1
    table = await asyncio.to_thread(rewardpool, *command)
    assert "Kendall's tau 1.000 within 1 prompts: 1 of 1 pairs in the same order, 0 tied now" in table.out


@pytest.mark.parametrize("address", ["s3://ledgers/run/", "s3://ledgers/run/one.jsonl"])
async def test_a_ledger_in_s3_is_rescored_and_goes_on_where_it_was_killed(
    address: str, worker: FakeWorker, rewardpool: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_of({"response": "a", "score": 1.0}, {"response": "aaa", "score": 3.0})
    command = ("rescore", address, "--pool", POOL, "--out", "out.jsonl", "-o", "json")
    with object_store(monkeypatch, bucket="ledgers") as store:
        for key in ("run/one.jsonl", "run/below/other.jsonl", "runs/other.jsonl"):
            store.upload_file("ledger/one.jsonl", "ledgers", key)
        ended = await asyncio.to_thread(rewardpool, *command)
        assert ended.code == 0, ended.err
        assert (json.loads(ended.out)["both"], len(worker.requests)) == (2, 2)
        begun_with("out.jsonl", LedgerRecords(Path("ledger"), names=["x"]), rows=1)
        ended = await asyncio.to_thread(rewardpool, *command)
    assert ended.code == 0, ended.err
    assert (json.loads(ended.out)["both"], len(worker.requests)) == (2, 3)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://ledgers/none", "s3://ledgers/none: has no files of a ledger"),
        ("s3://no-bucket/run", "s3://no-bucket/run: cannot be read"),
        ("s3://", "s3://: is not s3://BUCKET/PREFIX"),
        ("s3://ledgers/bad", "s3://ledgers/bad/one.jsonl, line 1: is no record of a ledger"),
    ],
)
async def test_a_ledger_in_s3_that_cannot_be_read_is_refused_by_its_address(
    address: str, message: str, worker: FakeWorker, rewardpool: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with object_store(monkeypatch, bucket="ledgers") as store:
        store.put_object(Bucket="ledgers", Key="bad/one.jsonl", Body=b"{}\n")
        ended = await asyncio.to_thread(rewardpool, "rescore", address, "--pool", POOL)
    assert (ended.code, worker.requests) == (2, [])
    assert message in ended.sentence


async def test_rescore_leaves_out_what_a_job_adds_meanwhile(
    tmp_path: Path, worker: FakeWorker, rewardpool: CommandLine
) -> None:
    ledger_of(*({"response": "a" * length, "score": 1.0} for length in range(1, 5)))
    line = read("ledger/one.jsonl").splitlines(keepends=True)[0]

    async def adds(request: Any) -> Any:
        for name in ("ledger/one.jsonl", "ledger/two.jsonl"):
            add(name, line)
        return await right(request)

    async with FakeWorker(afterwards=adds) as adding:
        write_local_pool(tmp_path, url=adding.url, model_type="Function")
        ended = await asyncio.to_thread(
            rewardpool, "rescore", "ledger", "--pool", POOL, "--out", "out.jsonl", "-o", "json"
        )
    assert ended.code == 0, ended.err
    assert (json.loads(ended.out)["rows"], len(scores())) == (4, 4)


async def test_rescore_goes_on_with_the_records_that_it_began_with(worker: FakeWorker, rewardpool: CommandLine) -> None:
    ledger_of(*({"response": "a" * length, "score": 1.0} for length in range(1, 5)))
    command = ("rescore", "ledger", "--pool", POOL, "--out", "out.jsonl", "-o", "json")
    await asyncio.to_thread(rewardpool, *command)
    # The job had gone on.
    begun_with("out.jsonl", LedgerRecords(Path("ledger"), names=["x"]), rows=1)
    for name in ("ledger/a.jsonl", "ledger/one.jsonl"):
        add(name, read("ledger/one.jsonl"))
    asked = len(worker.requests)
    ended = await asyncio.to_thread(rewardpool, *command)
    assert ended.code == 0, ended.err
    assert ([one["row"] for one in scores()], len(worker.requests) - asked) == ([0, 1, 2, 3], 3)


def test_a_ledger_that_lacks_what_its_scores_were_begun_with_is_refused_by_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text("")
    with pytest.raises(ConfigError, match=r"has no a\.jsonl any more.* or is Parquet now"):
        LedgerRecords(tmp_path, names=["length"]).go_on({"files": {"a.jsonl": 7}})


def test_a_ledger_may_have_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    record = {"at": 1.0, "part": "length", "prompt_hash": "p", "response_hash": "r", "score": 1.0}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(int(number) for number in os.listdir("/proc/self/fd")) + 10
    for number in range(limit):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(record | {"prompt": "?", "response": f"{number}"}) + "\n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    try:
        assert LedgerRecords(tmp_path, names=["length"]).check().rows == limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_rescore_draws_the_scores_now_over_those_from_before(worker: FakeWorker, rewardpool: CommandLine) -> None:
    ledger_of({"response": "a", "score": 1.0}, {"response": "aaa", "score": 3.0})
    ended = await asyncio.to_thread(rewardpool, "rescore", "ledger", "--pool", POOL, "--plot", "agreement.png")
    assert ended.code == 0, ended.err
    assert (await asyncio.to_thread(Path("agreement.png").read_bytes)).startswith(b"\x89PNG")


async def test_scores_that_are_too_large_to_draw_are_named_after_the_result(
    worker: FakeWorker, rewardpool: CommandLine
) -> None:
    ledger_of({"response": "a", "score": 1e308})
    ended = await asyncio.to_thread(rewardpool, "rescore", "ledger", "--pool", POOL, "--plot", "agreement.png")
    assert "1: 1 with a score then and now" in ended.out
    assert "--plot: scores of 1e+308 are too large to draw" in ended.sentence


async def test_a_picture_that_fails_in_the_end_costs_no_result(worker: FakeWorker, rewardpool: CommandLine) -> None:
    ledger_of({"response": "a", "score": 1.0}, {"response": "aaa", "score": 3.0})
    await asyncio.to_thread(Path("agreement.png").mkdir)
    ended = await asyncio.to_thread(rewardpool, "rescore", "ledger", "--pool", POOL, "--plot", "agreement.png")
    assert ended.code != 0
    assert "2: 2 with a score then and now" in ended.out


async def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_scored(
    worker: FakeWorker, rewardpool: CommandLine
) -> None:
    ledger_of({"response": "a", "score": 1.0})
    for name, message in (("a.jpg", "must end in .png"), ("none/a.png", "there is no folder none")):
        ended = await asyncio.to_thread(rewardpool, "rescore", "ledger", "--pool", POOL, "--plot", name)
        assert (ended.code, worker.requests) == (2, [])
        assert message in ended.sentence


@pytest.mark.parametrize(
    ("records", "arguments", "message"),
    [
        ([{"score": 1.0}], (), "ledger/one.jsonl, line 1: has no response, so that it cannot be scored"),
        ([{"score": 1.0, "response": "a"}], ("--failed-only",), "ledger: has no record without a score"),
        ([{"score": "x", "response": "a"}], (), "ledger/one.jsonl, line 1: is no record of a ledger"),
        (
            [{"score": 1.0, "response": "a"}, {"score": 1.0, "response": "a", "part": "b"}],
            (),
            "--part: the ledger has scores of several parts: name one of b, length",
        ),
    ],
)
async def test_rescore_refuses_what_it_cannot_score(
    worker: FakeWorker, rewardpool: CommandLine, records: list[dict[str, Any]], arguments: tuple[str, ...], message: str
) -> None:
    ledger_of(*records)
    ended = await asyncio.to_thread(rewardpool, "rescore", "ledger", "--pool", POOL, *arguments)
    assert (ended.code, worker.requests) == (2, [])
    assert message in ended.sentence


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"pool": POOL, "ledger": "ledger"}, "ledger of --reward is not for rescore"),
        (
            {"rewards": [{"pool": POOL, "name": "a"}, {"pool": POOL, "name": "b"}]},
            "reward: has the parts a, b and none of the name length",
        ),
    ],
)
async def test_rescore_refuses_a_reward_that_cannot_be_compared(
    worker: FakeWorker, rewardpool: CommandLine, reward: dict[str, Any], message: str
) -> None:
    ledger_of({"response": "a", "score": 1.0})
    write("reward.yaml", json.dumps(reward))
    ended = await asyncio.to_thread(rewardpool, "rescore", "ledger", "--reward", "reward.yaml")
    assert (ended.code, worker.requests) == (2, [])
    assert message in ended.sentence

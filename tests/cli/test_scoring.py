"""What `rewardpool score` sends to a Function pool and tells of its answer, over a FakeWorker."""

import json
from pathlib import Path

import pytest
from support.fake_worker import FakeWorker, says
from support.local_pool import POOL, on_this_machine, write_local_pool

from rewardpool import InvalidSampleError
from rewardpool_cli.commands.score import SampleToScore, score_one

ANSWER = {"data": [{"index": 0, "embedding": [1.0], "info": {"acc": True}}]}


def question(extra_info: str) -> SampleToScore:
    return SampleToScore(text="4", ground_truth="4", data_source="", extra_info=extra_info)


async def test_a_function_gets_extra_info_and_what_it_returns_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with FakeWorker(says(json.dumps(ANSWER))) as worker:
        write_local_pool(tmp_path, url=worker.url, model_type="Function")
        with pytest.raises(InvalidSampleError, match="--extra-info: extra_info is the JSON text of a list"):
            await score_one(question("[1]"), pool=POOL, wait_seconds=0)
        answer = await score_one(question('{"level": 1}'), pool=POOL, wait_seconds=0)
        assert json.loads(worker.requests[0]["input"])["extra_info"] == {"level": 1}
    assert (answer["score"], answer["info"]) == (1.0, {"acc": True})

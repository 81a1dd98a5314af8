"""The steady load of the end-to-end runs, at a pool that answers only when nothing more is asked."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from faults import traffic
from rewardpool import Scored


class LatePool:
    """A stand-in for the client that ends the traffic upon the third sample, and answers after that."""

    def __init__(self, config: Any) -> None:
        self._asked = 0

    async def __aenter__(self) -> "LatePool":
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def outcome(self, sample: Any) -> Scored:
        self._asked += 1
        if self._asked == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)
        return Scored(value=traffic.question(sample.id).score, attempts=1, seconds=0.1)


async def test_what_is_in_flight_when_the_traffic_ends_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "Pool", LatePool)

    await asyncio.wait_for(traffic.run("pools/p", tmp_path, rate=1000.0), 30)

    asked = json.loads((tmp_path / traffic.ENDED).read_text())["asked"]
    lines = [json.loads(line) for line in (tmp_path / traffic.SAMPLES).read_text().splitlines()]
    assert asked >= 3
    assert sorted(line["index"] for line in lines) == list(range(asked))
    assert {line["problem"] for line in lines} == {None}

"""`make bench-teacher`: that both wires say the same, and what it aims at."""

from typing import Any

import orjson
import pytest
from teacher_cost import client, wires
from teacher_cost.aims import aims

from rewardpool_api.teacher_wire import question
from rewardpool_worker.engine_side.middleware.teacher_engines import of_vllm

ASKED = question(range(40), top_k=3)


def test_both_wires_give_the_same_arrays() -> None:
    flat = wires.flat_lists(ASKED)
    read = wires.read_ours(wires.ours(flat, ASKED), ASKED).flat
    nested = wires.read_nested(wires.write_nested(flat, ASKED, orjson.dumps), ASKED, orjson.loads)
    assert nested == (read.logprobs, read.top_ids, read.top_logprobs)
    assert read == of_vllm(flat, ASKED)


def test_a_size_has_bytes_and_times_of_every_way() -> None:
    found = wires.measure(ASKED, rounds=1)
    assert found["bytes"]["rewardpool"] < found["bytes"]["orjson"] < found["bytes"]["json"]
    assert all(min(ends.values()) > 0 for ends in found["seconds"].values())


async def test_client_and_bare_session_ask_the_same_server() -> None:
    found = await client.measure(ASKED, rounds=1, requests=4, at_once=2)
    assert min(found["requests_per_second"].values()) > 0


@pytest.mark.parametrize(("ratio", "met"), [(0.96, True), (0.9, False)])
def test_the_largest_size_is_what_the_aims_are_about(ratio: float, met: bool) -> None:
    def size(bytes_: float, seconds: float) -> dict[str, Any]:
        ends = {"rewardpool": {"server": 1.0, "client": 1.0}, "json": {"server": seconds, "client": 9.0}}
        return {"positions": 8, "top_k": 1, "bytes": {"rewardpool": 1, "json": bytes_}, "seconds": ends}

    one = {"positions": 8, "top_k": 1, "at_once": 8, "ratio": ratio}
    found = aims({"wires": [size(1, 1), size(7, 7)], "client": [one]})
    assert [(aim["measured"], aim["met"]) for aim in found] == [(7, True), (7, False), (9, True), (ratio, met)]


@pytest.mark.parametrize(("slowest", "met"), [(1.4, True), (1.6, False)])
def test_a_late_health_misses_its_aim(slowest: float, met: bool) -> None:
    health = {"positions": 8, "top_k": 1, "at_once": 4, "health_seconds": {"slowest": slowest}}
    assert [(aim["measured"], aim["met"]) for aim in aims({"health": health})] == [(slowest, met)]

"""The front door, over functions of this process and a FakeWorker; with a real pool it is in tests/local."""

import asyncio
import functools
import gc
import io
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.fake_worker import FakeWorker
from support.local_pool import POOL, on_this_machine, write_local_pool
from support.reward_functions import expected_score

from rewardpool import (
    ConfigError,
    Episode,
    FunctionFailedError,
    GroupAbortedError,
    InvalidSampleError,
    PoolNotFoundError,
    Rating,
    Reward,
    RewardConfig,
    RewardPoolError,
    UnscoredError,
)
from rewardpool._rewards.config import Mixing
from rewardpool._rewards.keywords import RewardSettings
from rewardpool._rewards.part_config import FunctionPart, PoolPart

PROMPTS = ["one?", "two?", "two?"]
RESPONSES = ["a", "bb", "ccc"]


def length(solution_str: str, **_: Any) -> float:
    if solution_str == "boom":
        raise ValueError("no")
    return float(len(solution_str))


def truth(solution_str: str, ground_truth: str, data_source: str, extra_info: Mapping[str, Any]) -> float:
    return float(solution_str == ground_truth) + 10 * len(data_source) + 100 * extra_info.get("bonus", 0)


def test_prompts_and_responses_have_scores_in_their_order() -> None:
    with Reward(length) as scorer:
        assert scorer(PROMPTS, RESPONSES) == [1.0, 2.0, 3.0]
        assert scorer([], []) == []


def test_columns_go_to_the_function() -> None:
    with Reward(truth) as scorer:
        assert scorer(PROMPTS, RESPONSES, ground_truth=["a", "b", "ccc"], data_source="x") == [11.0, 10.0, 11.0]
        assert scorer(PROMPTS, RESPONSES, extra_info=[{}, {"bonus": 1}, {}]) == [0.0, 100.0, 0.0]
        assert scorer(PROMPTS, RESPONSES, extra_info={"bonus": 1}, data_source=["", "x", ""]) == [100.0, 110.0, 100.0]


def test_chat_messages_will_do_for_a_prompt_and_for_a_response() -> None:
    prompt = [{"role": "user", "content": "one?"}]
    with Reward(length) as scorer:
        assert scorer([prompt], [[{"role": "assistant", "content": "four"}]]) == [4.0]


def test_a_function_may_be_named() -> None:
    with Reward("python://support.reward_functions:compute_score") as scorer:
        assert scorer(["?"], ["a"]) == [expected_score("a")]
    with pytest.raises(ConfigError, match=r"reward\.function: cannot load"), Reward("python://no_such_module:fn"):
        pass


def test_a_pool_is_found_by_its_name_and_the_url_will_do_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked() -> list[list[float | None]]:
        async with FakeWorker() as worker:
            write_local_pool(tmp_path, url=worker.url, model_type="Function")
            by_name = Reward(POOL, timeout=10)
            by_url = Reward(worker.url, type="Function")
            mixture = Reward({"rewards": [POOL, {"function": length, "weight": 1000}]})
            scores = []
            for one in (by_name, by_url, mixture):
                scores.append(await asyncio.to_thread(one, ["?", "?"], ["a", "bb"]))
                await asyncio.to_thread(one.close)
            return scores

    on_this_machine(monkeypatch, tmp_path)
    by_name, by_url, mixture = asyncio.run(asked())
    assert by_name == by_url
    [first, second] = by_name
    assert first is not None
    assert second == first + 1  # a letter more
    assert mixture == [first + 1000, second + 2000]


def test_what_has_no_score_is_named_by_its_index_and_the_others_keep_theirs() -> None:
    with Reward(length) as scorer, pytest.raises(UnscoredError) as caught:
        scorer(["?"] * 4, ["a", "boom", "cc", "boom"])
    assert str(caught.value).startswith("2 of 4 responses have no score: 1, 3. The first: sample #1: ")
    assert caught.value.scores == [1.0, None, 2.0, None]
    assert isinstance(caught.value.errors[3], FunctionFailedError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_none_stands_for_what_has_no_score_only_where_that_is_asked_for() -> None:
    with Reward(length, on_failure="skip") as scorer:
        assert scorer(["?", "?"], ["boom", "a"]) == [None, 1.0]
    with Reward(length, on_failure={"policy": {"penalty": -1}, "verifier": "skip"}) as scorer:
        assert scorer(["?", "?"], ["boom", "a"]) == [None, 1.0]


def test_rows_of_one_prompt_are_compared_with_each_other() -> None:
    with Reward({"function": length, "normalize": "group"}) as scorer:
        assert scorer(PROMPTS, RESPONSES) == pytest.approx([0.0, -1.0, 1.0], abs=1e-3)
        with pytest.raises(UnscoredError, match=r"1 of 3 responses have no score: 1\.") as caught:
            scorer(PROMPTS, ["a", "boom", "c"])
    assert "1 more were given up with their group: 2." in str(caught.value)
    assert isinstance(caught.value.errors[2], GroupAbortedError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_episode_without_an_id_is_named_by_its_row() -> None:
    episodes = [Episode(prompt="?", response=response, group=0) for response in ("a", "cc", "boom")]
    with Reward({"function": length, "normalize": "group"}) as scorer, pytest.raises(UnscoredError) as caught:
        scorer.rate(episodes)
    assert str(caught.value).startswith("1 of 3 responses have no score: 2. The first: sample #2: ")


def test_a_rating_says_what_the_score_is_made_of() -> None:
    with Reward({"rewards": [{"function": length, "weight": 2}]}) as scorer:
        [rating] = scorer.rate([("?", "abc")])
    assert (rating.total, rating.components) == (6.0, {"length": 3.0})


def test_rows_may_be_mappings_and_come_from_a_generator() -> None:
    rows = ({"prompt": "?", "response": response, "ground_truth": "a"} for response in ("a", "bb"))
    with Reward(truth) as scorer:
        assert [rating.total for rating in scorer.rate(rows)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("prompts", "responses", "error", "said"),
    [
        ("one?", ["a"], TypeError, "prompts must be a list"),
        (["one?"], "a", TypeError, "responses must be a list"),
        ([{"role": "user", "content": "one?"}], ["a"], TypeError, "prompts must be a list"),
        (["one?"], ["a", "b"], ValueError, "prompts has 1 for 2 responses"),
        (["one?"], [[]], InvalidSampleError, "no messages"),
    ],
)
def test_what_is_no_batch_is_refused_with_words(
    prompts: Any, responses: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Reward(length)(prompts, responses)


def test_all_mistakes_are_told_when_it_is_made() -> None:
    with pytest.raises(ConfigError) as caught:
        Reward("skywork", timout=5)  # type: ignore[call-arg]
    assert str(caught.value).splitlines() == [
        "reward.pool: must be namespace/name of a RewardPool, such as rl/skywork",
        "reward.timout: unknown key; did you mean timeout?",
    ]


def test_a_bare_name_is_refused_with_the_pools_of_this_machine_that_it_may_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    write_local_pool(tmp_path)
    namespace, _, name = POOL.partition("/")
    assert namespace
    for bare in (name, name.upper(), f"{name}s"):
        with pytest.raises(ConfigError, match=rf"such as rl/skywork; this machine has {POOL}$"):
            Reward(bare)


def test_with_opens_it_at_once_so_a_pool_that_is_not_there_is_told_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    with pytest.raises(PoolNotFoundError), Reward("rl/nothing"):
        pass


def closed(scorer: Reward) -> Reward:
    assert scorer(["?"], ["a"]) == [1.0]
    scorer.close()
    scorer.close()
    return scorer


USES = [
    lambda scorer: scorer(["?"], ["a"]),
    lambda scorer: scorer.rate([("?", "a")]),
    lambda scorer: scorer.pools,
    lambda scorer: scorer.__enter__(),
    lambda scorer: asyncio.run(scorer.score("?", "a")),
    lambda scorer: asyncio.run(anext(scorer.stream([("?", "a")]))),
]


@pytest.mark.parametrize("use", USES)
def test_a_closed_one_stays_closed(use: Any) -> None:
    for scorer in (closed(Reward(length)), pickle.loads(pickle.dumps(closed(Reward(length))))):
        with pytest.raises(RuntimeError, match="the reward by function length is closed; make another one"):
            use(scorer)


def test_one_that_is_closed_while_it_scores_says_so() -> None:
    begun = threading.Event()

    async def hangs(**_: Any) -> float:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    scorer = Reward(hangs, run_in="threads")
    closing = threading.Thread(target=lambda: begun.wait(10) and scorer.close())
    closing.start()
    with pytest.raises(RuntimeError, match="closed while it scored"):
        scorer(["?"], ["a"])
    closing.join()


def test_one_that_is_forgotten_open_warns_and_ends_its_thread() -> None:
    before = set(threading.enumerate())
    scorer = Reward(length)
    scorer(["?"], ["a"])
    [thread] = [one for one in threading.enumerate() if one.name == "rewardpool" and one not in before]
    with pytest.warns(ResourceWarning, match=r"<Reward by function length: open> was not closed; use `with`"):
        del scorer
    thread.join(10)
    assert not thread.is_alive()


def test_one_that_is_forgotten_ends_its_thread_where_warnings_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    before = set(threading.enumerate())
    scorer = Reward(length)
    scorer(["?"], ["a"])
    [thread] = [one for one in threading.enumerate() if one.name == "rewardpool" and one not in before]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del scorer
    thread.join(10)
    assert not thread.is_alive()
    assert [one.exc_type for one in ignored] == [ResourceWarning]


@pytest.mark.parametrize("end", [lambda scorer: None, closed])
def test_one_that_is_not_open_is_forgotten_without_a_word(end: Any) -> None:
    scorer = Reward(length)
    end(scorer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del scorer
        gc.collect()


def test_it_says_what_it_is_and_whether_it_is_open() -> None:
    mixture = {"rewards": ["rl/skywork", {"function": "rules:right"}, {"url": "http://router:30000", "name": "b"}]}
    assert repr(Reward(mixture)) == (
        "<Reward by pool rl/skywork, function rules:right, pool http://router:30000: not open>"
    )
    with Reward(length) as scorer:
        assert repr(scorer) == "<Reward by function length: open>"
    assert repr(scorer) == "<Reward by function length: closed>"


async def test_an_open_one_says_where_its_pool_is_and_no_key(tmp_path: Path) -> None:
    async with FakeWorker() as worker:
        (tmp_path / "key").write_text("secret")
        async with Reward(worker.url, type="Function", key_file=tmp_path / "key") as scorer:
            assert repr(scorer) == f"<Reward by pool {worker.url}: open at {worker.url}>"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Reward("rl/skywork", timeout="soon"),  # type: ignore[arg-type]
        lambda: Reward("python://no_such_module:fn")(["?"], ["a"]),
        lambda: Reward(length)(["?"], [None]),  # type: ignore[list-item]
        lambda: Reward(length).rate([{"prompt": "?"}]),
        lambda: Reward("rl/nothing").__enter__(),
    ],
)
def test_a_mistake_is_told_without_frames_of_ours(wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_this_machine(monkeypatch, tmp_path)
    with pytest.raises(RewardPoolError) as caught:
        wrong()
    ours = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if "trainer_plugin" in frame.filename]
    assert len(ours) <= 2
    assert caught.value.__suppress_context__
    assert not isinstance(caught.value.__cause__, RewardPoolError | ValidationError)


def test_the_users_own_exception_stays_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_rules.py").write_text("raise KeyError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        Reward({"function": "broken_rules:fn", "run_in": "threads"})(["?"], ["a"])
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda **_: 1.0, "lambda"),
        (functools.partial(length), "function"),
        (type("Rule", (), {"__call__": lambda self, **_: 1.0})(), "function"),
    ],
)
def test_any_callable_scores(function: Any, name: str) -> None:
    with Reward(function) as scorer:
        assert scorer.rate([("?", "a")])[0].components == {name: 1.0}


@pytest.mark.parametrize(("reward", "found"), [(None, "None"), (3, "an int"), (["rl/skywork"], "a list")])
def test_what_no_reward_is_written_as_is_refused(reward: Any, found: str) -> None:
    with pytest.raises(ConfigError, match=rf"reward: must be namespace/name of a RewardPool, .* not {found}$"):
        Reward(reward)


def test_every_field_of_a_reward_is_a_keyword_that_editors_know() -> None:
    fields = {*RewardConfig.model_fields, *PoolPart.model_fields, *FunctionPart.model_fields, *Mixing.model_fields}
    own = {"tokenizer", "client"}  # a keyword of its own; the fields of RewardConfig
    assert set(RewardSettings.__annotations__) - {"length_penalty"} == fields - own


def test_a_copy_opens_its_own() -> None:
    with Reward(length) as scorer, pickle.loads(pickle.dumps(scorer)) as copy:
        assert copy(["?"], ["a"]) == [1.0]


async def test_it_is_called_within_a_running_loop_too() -> None:
    async with Reward(length) as scorer:
        assert scorer(["?"], ["a"]) == [1.0]


async def test_one_response_is_awaited() -> None:
    async with Reward(truth) as scorer:
        assert await scorer.score("?", "a", ground_truth="a") == 1.0


@pytest.mark.parametrize("on_failure", ["raise", "skip"])
async def test_one_response_without_a_score_raises_whatever_the_policy(on_failure: str) -> None:
    async with Reward(length, on_failure=on_failure) as scorer:
        with pytest.raises(FunctionFailedError):
            await scorer.score("?", "boom")


async def trajectories() -> AsyncIterator[Episode | tuple[str, str]]:
    yield "?", "a"
    yield Episode(prompt="?", response="bb")
    yield "?", "boom"


async def test_trajectories_are_rated_as_they_come() -> None:
    async with Reward(length, on_failure="skip") as scorer:
        assert {index: rating.total async for index, rating in scorer.stream(trajectories())} == {0: 1, 1: 2, 2: None}


async def test_a_stream_ends_with_the_first_failure_under_raise() -> None:
    async with Reward(length) as scorer:
        with pytest.raises(FunctionFailedError, match="#2"):
            async for _ in scorer.stream(trajectories()):
                pass


async def test_a_stream_that_is_left_gives_up_what_is_begun() -> None:
    begun, given_up = threading.Event(), threading.Event()

    async def one_hangs(solution_str: str, **_: Any) -> float:
        if solution_str != "a":
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                given_up.set()
        return 1.0

    async with (
        Reward(one_hangs, run_in="threads") as scorer,
        aclosing(scorer.stream([("?", "a"), ("?", "b")])) as stream,
    ):
        assert (await anext(stream))[0] == 0
        assert await asyncio.to_thread(begun.wait, 10)
        await stream.aclose()
        assert await asyncio.to_thread(given_up.wait, 10)


async def test_a_stream_over_a_reward_that_is_closed_ends() -> None:
    async def hangs(**_: Any) -> float:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    begun = threading.Event()
    scorer = Reward(hangs, run_in="threads")

    async def take() -> list[tuple[int, Rating]]:
        return [item async for item in scorer.stream([("?", "a")])]

    taking = asyncio.create_task(take())
    await asyncio.to_thread(begun.wait, 10)
    await asyncio.to_thread(scorer.close)
    with pytest.raises(RuntimeError, match="closed"):
        await taking


async def test_a_reward_that_compares_has_no_stream() -> None:
    async with Reward({"function": length, "normalize": "group"}) as scorer:
        with pytest.raises(ConfigError, match="whole batches"):
            await anext(scorer.stream([("?", "a")]))


def test_ctrl_c_gives_up_what_is_asked() -> None:
    given_up = threading.Event()

    async def interrupts(**_: Any) -> float:
        await asyncio.sleep(0.1)  # its caller waits by then; a moment earlier there was nothing to give up yet
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return 0.0

    scorer = Reward(interrupts, run_in="threads")
    with pytest.raises(KeyboardInterrupt):
        scorer(["?"], ["a"])
    assert given_up.wait(10)
    scorer.close()


class Terminal(io.StringIO):
    """Stands in for stderr at a terminal; says when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_a_long_wait_at_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    def once_written(**_: Any) -> float:
        assert terminal.written.wait(10)
        return 1.0

    terminal = Terminal()
    monkeypatch.setattr("rewardpool._reward.BAR_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    with Reward(once_written, run_in="threads") as scorer:
        assert scorer(["?", "?"], ["a", "b"]) == [1.0, 1.0]
    assert "once_written" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()


def test_a_short_wait_and_a_log_have_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Reward(length) as scorer:
        scorer(["?"], ["a"])
    assert terminal.getvalue() == ""

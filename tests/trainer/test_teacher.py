"""Log-probabilities as a trainer asks for them, from FakeWorkers that give them rightly, wrongly or not at all."""

import asyncio
import json
import pickle
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.fake_worker import FakeWorker, breaks_off, hangs, refuses, says
from support.local_pool import POOL, on_this_machine, write_local_pool
from support.quick_hedging import quick
from support.tiny_teacher import computed, spoilt, teaches

import rewardpool
from rewardpool import (
    BlockingPool,
    ConfigError,
    DeadlineError,
    InvalidSampleError,
    Logprobs,
    LogprobsMissingError,
    Pool,
    RewardConfig,
    Sample,
    SampleTooLongError,
    ScoreError,
    Teacher,
    WrongModelError,
    WrongTokenizerError,
)
from rewardpool._client.pool import injected_pool
from rewardpool_api.contract import CallerError
from rewardpool_api.teacher_wire import FLOAT32, SequenceQuestion, question, to_base64, vocabulary_digest

T = TypeVar("T")
IDS = [3, 1, 4, 1, 5, 9]


def teacher(*script: Any, **options: Any) -> FakeWorker:
    return FakeWorker(*script, afterwards=teaches, **options)


async def ask(
    worker: FakeWorker, token_ids: Any = IDS, *, most: int = 6, timeout: float = 20.0, **asked: Any
) -> Logprobs:
    async with Pool(RewardConfig(url=worker.url, timeout=timeout, max_attempts=most)) as pool:
        return await pool.logprobs(token_ids, **asked)


def equal(found: Logprobs, asked: SequenceQuestion) -> bool:
    values = computed(asked)
    return (found.start, [*found.token_ids], [*found.logprobs]) == (
        asked.start,
        values.token_ids.tolist(),
        values.logprobs.tolist(),
    )


@pytest.mark.parametrize("start", [1, 3, 5])
async def test_every_position_from_start_on_has_its_own_number(start: int) -> None:
    async with teacher() as worker:
        found = await ask(worker, start=start)
    assert equal(found, question(IDS, start=start))
    assert (len(found), found.revision) == (6 - start, worker.revision)
    assert (found.top_ids, found.top_logprobs, found.ids_logprobs) == (None, None, None)


async def test_arrays_have_shapes_and_dtypes() -> None:
    async with teacher() as worker:
        found = await ask(worker, start=3, top_k=2, ids=[[7, 8, 9]] * 3)
    values = computed(question(IDS, start=3, top_k=2, ids=[[7, 8, 9]] * 3))
    assert found.top_ids is not None
    assert found.top_logprobs is not None
    assert found.ids_logprobs is not None
    assert (found.token_ids.shape, found.token_ids.format) == ((3,), "i")
    assert (found.logprobs.shape, found.logprobs.format) == ((3,), "f")
    assert (found.top_ids.shape, found.top_ids.format) == ((3, 2), "i")
    assert (found.top_logprobs.shape, found.top_logprobs.format) == ((3, 2), "f")
    assert found.ids_logprobs.shape == (3, 3)
    assert found.top_logprobs[2, 1] == values.top_logprobs[5]
    assert found.top_ids.tolist()[1] == values.top_ids[2:4].tolist()


async def test_an_answer_survives_pickling() -> None:
    async with teacher() as worker:
        found = await ask(worker, top_k=2)
    copy = pickle.loads(pickle.dumps(found))
    assert copy == found
    assert copy.top_logprobs.tolist() == found.top_logprobs.tolist()  # type: ignore[union-attr]


async def test_a_job_says_how_long_the_sequences_of_its_teacher_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with teacher() as worker:
        write_local_pool(tmp_path, url=worker.url, model_type="Teacher")
        async with Pool(RewardConfig(pool=POOL)) as pool:
            demand = pool.demand(samples=32)
            demand.rollout()
            await asyncio.gather(pool.logprobs(IDS), pool.logprobs(IDS[:4]))
            assert (demand.now().samples, demand.now().tokens, demand.now().tokens_per_sample) == (32, 32 * 5, 5.0)


def position_less(name: str) -> Callable[..., Any]:
    found = computed(question(IDS, top_k=1))
    return spoilt(**{name: to_base64(getattr(found, name)[:-1])})


@pytest.mark.parametrize(
    "wrong",
    [
        position_less("logprobs"),
        position_less("token_ids"),
        position_less("top_logprobs"),
        spoilt(logprobs=to_base64(array(FLOAT32, [0.0, 0.0, float("nan"), 0.0, 0.0]))),
        spoilt(token_ids=to_base64(array("i", IDS[:-1]))),
        spoilt(rows=4),
        spoilt(logprobs=None),
        says("[1, 2"),
        says("{}"),
        breaks_off,
        says("overloaded", status=503),
        says("broken", status=500),
    ],
)
async def test_an_answer_that_is_not_whole_is_asked_for_again_and_never_filled_up(wrong: Any) -> None:
    async with teacher(wrong) as worker:
        assert equal(await ask(worker, top_k=1), question(IDS, top_k=1))
    assert len(worker.requests) > 1


async def test_what_is_never_whole_is_an_error_that_says_what_is_missing() -> None:
    async with FakeWorker(afterwards=position_less("logprobs")) as worker:
        with pytest.raises(ScoreError, match="logprobs has 4 values, not 1 for each of 5 rows") as missing:
            await ask(worker, top_k=1, most=1)
    assert (missing.value.kind, missing.value.fault) == ("invalid_response", "infra")


async def test_an_answer_that_is_not_whole_names_its_worker() -> None:
    async with FakeWorker(afterwards=spoilt(rows=4)) as worker:
        worker.name = "teacher-0"
        with pytest.raises(ScoreError, match="worker teacher-0: the answer's rows is 4, and 5 was asked"):
            await ask(worker, most=1)


async def test_a_worker_that_stands_still_costs_no_answer() -> None:
    async with teacher(hangs) as worker:
        config = RewardConfig(url=worker.url, timeout=60)
        async with injected_pool(config, hedging=lambda concurrency: quick(None, concurrency=concurrency)) as pool:
            assert equal(await pool.logprobs(IDS), question(IDS))
            assert pool.report().hedges_won == 1


async def test_a_teacher_that_never_answers_is_an_error_at_the_deadline() -> None:
    async with FakeWorker(afterwards=hangs) as worker:
        with pytest.raises(DeadlineError, match=r"no score within 0\.3 s"):
            await ask(worker, timeout=0.3)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (CallerError(code="invalid_sample", message="top_k is 9"), InvalidSampleError, "top_k is 9"),
        (
            CallerError(code="sample_too_long", message="x", length_tokens=9, limit_tokens=8),
            SampleTooLongError,
            "has 9 tokens and the model takes at most 8",
        ),
        (CallerError(code="wrong_model", message="x", served="another"), WrongModelError, "another"),
    ],
)
async def test_a_workers_refusal_is_not_repeated(error: CallerError, kind: type[Exception], said: str) -> None:
    async with FakeWorker(afterwards=refuses(error)) as worker:
        with pytest.raises(kind, match=said):
            await ask(worker)
    assert kind is WrongModelError or len(worker.requests) == 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"token_ids": [7]}, "#0: input_ids has 1 tokens: the first one has no log-probability"),
        ({"token_ids": []}, "input_ids has 0 tokens"),
        ({"token_ids": [1, -2]}, r"token_ids\[1\] is -2, not a token id"),
        ({"token_ids": [1, 2.5]}, r"token_ids\[1\] is 2.5, not a whole number"),
        ({"start": 6}, "start is 6, and must be 1 to 5"),
        ({"start": 0}, "start is 0, and must be 1 to 5"),
        ({"top_k": 2000}, "top_k is 2000"),
        ({"ids": [[1]]}, "ids has 1 rows, and there are 5 positions"),
    ],
)
async def test_a_malformed_question_is_refused_before_it_is_sent(asked: dict[str, Any], said: str) -> None:
    async with teacher() as worker:
        with pytest.raises(InvalidSampleError, match=said) as refused:
            await ask(worker, **asked)
    assert refused.value.fault == "verifier"
    assert worker.requests == []


async def test_a_long_answer_may_be_larger_than_a_score() -> None:
    asked = question([7] * 6000, top_k=64)
    ids, logprobs = to_base64(array("i", [7] * 64) * 5999), to_base64(array(FLOAT32, [-5.0] * 64) * 5999)

    async def answers(request: Any) -> Any:
        own = {"token_ids": to_base64(asked.token_ids[1:]), "logprobs": to_base64(array(FLOAT32, [-6.0]) * 5999)}
        shape = {"start": 1, "rows": 5999, "top_k": 64, "ids_per_row": 0}
        return await says(json.dumps({**shape, **own, "top_ids": ids, "top_logprobs": logprobs}))(request)

    async with FakeWorker(afterwards=answers) as worker:
        found = await ask(worker, [7] * 6000, top_k=64)
    assert found.top_logprobs is not None
    assert found.top_logprobs.shape == (5999, 64)


@pytest.mark.parametrize(
    ("count", "length", "at_once"),
    [
        (64, 100, 64),
        (64, 2048, 64),
        (64, 32_768, 4),
        (100, 8192, 16),
        pytest.param(1000, 8192, 16, marks=pytest.mark.long),
        (2, 200_000, 1),
    ],
)
async def test_a_long_sequence_takes_several_slots(count: int, length: int, at_once: int) -> None:
    full = asyncio.Event()

    async def answers(request: Any) -> Any:
        worker.requests.clear()
        if worker.in_flight == at_once:
            full.set()
        await full.wait()
        return await teaches(request)

    async with (
        FakeWorker(afterwards=answers) as worker,
        Pool(RewardConfig(url=worker.url, concurrency=64, hedge=False)) as pool,
    ):
        sequence = array("i", [7] * length)
        found = await asyncio.gather(*(pool.logprobs(sequence, start=length - 1) for _ in range(count)))
    assert [len(one) for one in found] == [1] * count
    assert worker.most_in_flight == at_once


async def test_a_pool_of_another_type_is_not_asked_and_a_teacher_gives_no_score(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with teacher() as worker:
        write_local_pool(tmp_path, url=worker.url, model_type="Discriminative")
        async with Pool("rl/skywork") as pool:
            with pytest.raises(InvalidSampleError, match="rl/skywork is Discriminative, and a Teacher gives"):
                await pool.logprobs(IDS)
        write_local_pool(tmp_path, url=worker.url, model_type="Teacher")
        async with Pool("rl/skywork") as pool:
            with pytest.raises(InvalidSampleError, match="rl/skywork is a Teacher, which gives log-probabilities"):
                await pool.score(Sample(text="hello"))
            assert equal(await pool.logprobs(IDS), question(IDS))
    assert worker.requests[0]["session_params"]["rewardpool"]["model"] == "skywork"


async def test_an_answer_to_another_request_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with teacher(spoilt(request_id="another")) as worker:
        write_local_pool(tmp_path, url=worker.url, model_type="Teacher")
        async with Pool("rl/skywork") as pool:
            assert equal(await pool.logprobs(IDS), question(IDS))
    assert len(worker.requests) > 1


# The vocabulary.


class Tokenizer:
    """What a student's has of transformers' here."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = tokens

    def get_vocab(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}


STUDENTS = Tokenizer("a", "b")
DIGEST = vocabulary_digest(STUDENTS.get_vocab())


def revisions(tokenizer: str | None) -> list[dict[str, Any]]:
    return [{"revision": "5f1c0de5", "source": "hf://org/teacher", "servedName": "skywork", "tokenizer": tokenizer}]


async def test_a_student_with_another_vocabulary_is_refused_when_the_pool_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with teacher() as worker:
        write_local_pool(tmp_path, url=worker.url, model_type="Teacher", revisions=revisions("0123456789abcdef"))
        with pytest.raises(ConfigError, match=f"tokenizer: has the vocabulary {DIGEST}, and hf://org/teacher of rl/"):
            await asyncio.to_thread(Teacher("rl/skywork", tokenizer=STUDENTS).__enter__)
        assert worker.requests == []
        write_local_pool(tmp_path, url=worker.url, model_type="Teacher", revisions=revisions(DIGEST))
        async with Teacher("rl/skywork", tokenizer=STUDENTS) as it:
            assert equal(await it.logprobs(IDS), question(IDS))


async def test_an_answer_of_another_vocabulary_is_an_error_of_that_sequence() -> None:
    async with teacher() as worker, Teacher(worker.url, tokenizer=STUDENTS) as it:
        worker.tokenizer = DIGEST
        assert equal(await it.logprobs(IDS), question(IDS))
        worker.tokenizer = "0123456789abcdef"
        with pytest.raises(WrongTokenizerError):
            await it.logprobs(IDS)


def test_what_is_no_tokenizer_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="tokenizer: must be a tokenizer of transformers"):
        Teacher("http://127.0.0.1:9", tokenizer=7).__enter__()


# Several teachers.


async def test_each_sequence_is_asked_of_the_teacher_that_is_named_for_it() -> None:
    async with teacher() as maths, teacher() as code:
        it = Teacher({"maths": maths.url, "code": {"url": code.url}, "algebra": maths.url}, timeout=9)
        async with it:
            names = ["code", "maths", "algebra", "code"]
            sequences = [[1, 2], [3, 4], [5, 6], [7, 8]]
            found = await asyncio.to_thread(it, sequences, teacher=names)
            assert equal(await it.logprobs(IDS, teacher="code"), question(IDS))
            assert len(await asyncio.to_thread(it, sequences, teacher="maths")) == 4
            assert list(it.pools) == ["maths", "code", "algebra"]
            assert it.pools["maths"] is it.pools["algebra"]
            assert it.pools["code"].report().scored == 3
    assert all(equal(one, question(ids)) for one, ids in zip(found, sequences, strict=True))
    assert (len(maths.requests), len(code.requests)) == (6, 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [("prose", "teacher is 'prose', which is not known: name one of maths, code"), (None, "teacher is missing: name")],
)
async def test_a_teacher_that_is_not_there_is_refused_by_name_with_the_known_ones(name: str | None, said: str) -> None:
    async with teacher() as worker, Teacher({"maths": worker.url, "code": worker.url}) as it:
        with pytest.raises(ValueError, match=said):
            await it.logprobs(IDS, teacher=name)
        with pytest.raises(ValueError, match=said):
            await asyncio.to_thread(it, [IDS, IDS], teacher=["maths", name])
        with pytest.raises(ValueError, match=said):
            async with it.awake(teacher=name):
                pass
    assert worker.requests == []


def test_the_only_teacher_has_no_name() -> None:
    with pytest.raises(ValueError, match="teacher is 'maths', and there is one teacher, which has no name"):
        Teacher("http://127.0.0.1:9")([IDS], teacher="maths")


def test_wrong_fields_of_several_teachers_are_all_named() -> None:
    with pytest.raises(ConfigError) as wrong:
        Teacher({"maths": "teacher-maths", "code": 7, "prose": {"pool": "rl/prose", "timeout": -1}})
    for said in ("maths.pool: must be namespace/name", "code: must be namespace/name", "prose.timeout"):
        assert said in str(wrong.value)


async def test_the_vocabulary_of_each_of_several_teachers_is_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_this_machine(monkeypatch, tmp_path)
    async with teacher() as worker, teacher() as other:
        write_local_pool(tmp_path, url=other.url, model_type="Teacher", revisions=revisions("0123456789abcdef"))
        several = Teacher({"maths": worker.url, "code": "rl/skywork"}, tokenizer=STUDENTS)
        with pytest.raises(ConfigError, match="hf://org/teacher of rl/skywork has 0123456789abcdef"):
            await asyncio.to_thread(several.__enter__)
        write_local_pool(tmp_path, url=other.url, model_type="Teacher", revisions=revisions(DIGEST))
        worker.tokenizer = "0123456789abcdef"
        async with several:
            assert equal(await several.logprobs(IDS, teacher="code"), question(IDS))
            with pytest.raises(WrongTokenizerError):
                await several.logprobs(IDS, teacher="maths")


# Without an event loop.


async def in_thread(use: Callable[[], T]) -> T:
    return await asyncio.to_thread(use)


async def test_a_plain_pool_asks_too() -> None:
    async with teacher() as worker:

        def use() -> Logprobs:
            with BlockingPool(RewardConfig(url=worker.url)) as pool:
                return pool.logprobs(IDS, start=2)

        assert equal(await in_thread(use), question(IDS, start=2))


async def test_the_front_door_asks_about_a_batch_in_its_order() -> None:
    given = [[*range(length)] for length in range(3, 40)]
    async with teacher() as worker:

        def use() -> list[Logprobs]:
            with rewardpool.Teacher(worker.url, concurrency=4) as it:
                return it(given, start=[len(one) - 2 for one in given], top_k=1)

        found = await in_thread(use)
    assert all(equal(one, question(ids, start=len(ids) - 2)) for one, ids in zip(found, given, strict=True))
    assert worker.most_in_flight <= 4


async def test_a_sequence_without_an_answer_is_named_and_the_others_keep_theirs() -> None:
    async with teacher() as worker:

        def use() -> None:
            with Teacher(worker.url) as it:
                it([IDS, [7], IDS, [1, -1]])

        with pytest.raises(LogprobsMissingError, match="2 of 4 sequences have no log-probabilities: 1, 3") as missing:
            await in_thread(use)
    answers = missing.value.answers
    assert [one is None for one in answers] == [False, True, False, True]
    assert equal(answers[2], question(IDS))  # type: ignore[arg-type]
    assert str(pickle.loads(pickle.dumps(missing.value))) == str(missing.value)


async def test_the_front_door_is_async_too_and_opens_itself() -> None:
    async with teacher() as worker:
        async with Teacher(worker.url) as it:
            assert equal(await it.logprobs(IDS, start=4), question(IDS, start=4))
        with pytest.raises(RuntimeError, match="is closed"):
            await it.logprobs(IDS)


async def test_a_copy_in_another_process_opens_its_own_connections() -> None:
    async with teacher() as worker, Teacher(worker.url, timeout=9) as it:
        copy = pickle.loads(pickle.dumps(it))
        async with copy:
            assert equal(await copy.logprobs(IDS), question(IDS))
            assert copy.pool is not it.pool


async def test_one_that_is_left_open_says_so() -> None:
    async with teacher() as worker:
        it = Teacher(worker.url)
        await it.logprobs(IDS)
        with pytest.warns(ResourceWarning, match="was not closed; use `with`"):
            del it


def test_as_many_starts_as_sequences_are_asked_for() -> None:
    with pytest.raises(ValueError, match="2 sequences, 1 of start, 2 of ids and 2 of teacher: give as"):
        Teacher("http://127.0.0.1:9")([IDS, IDS], start=[1])


def test_a_wrong_field_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="timeout"):
        Teacher("rl/teacher", timeout=-1)


@pytest.mark.parametrize(
    ("name", "said"), [("pol", "pol: unknown key; did you mean pool"), (3, "must be a teacher's name")]
)
def test_a_misspelled_field_is_no_teachers_name(name: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Teacher({name: "rl/teacher"})


async def test_a_score_in_place_of_log_probabilities_is_no_answer() -> None:
    async with FakeWorker(afterwards=says(json.dumps({"data": [{"index": 0, "embedding": [0.0]}]}))) as worker:
        with pytest.raises(ScoreError, match="the answer's start is None, and 1 was asked"):
            await ask(worker, most=1)

"""Who is waited for, and who is not. Silence is an answer that the test gives when it likes."""

import asyncio
from typing import Any

import pytest

from rewardpool_kube.errors import KubeUnreachableError
from rewardpool_operator.kubernetes.polls import reading as readings
from rewardpool_operator.kubernetes.polls.reading import Polling, Reading


class Address:
    """Answers what it is told to, or is silent until then."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def question(self) -> str:
        self.asked += 1
        return await self.answer

    def says(self, answer: str) -> None:
        if self.answer.done():
            self.answer = asyncio.get_running_loop().create_future()
        self.answer.set_result(answer)

    def falls_silent(self) -> None:
        self.answer = asyncio.get_running_loop().create_future()


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests are not about how long a moment is."""
    monkeypatch.setattr(readings, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(readings, "FIRST_PATIENCE_SECONDS", 0.01)


def a_reading(news: list[str]) -> Reading[str]:
    session: Any = None
    polling = Polling(session=session, news=lambda: news.append("!"))
    return Reading(polling, is_answer=lambda answer: answer != "nobody there")


async def test_who_answers_at_once_is_heard_at_once() -> None:
    address, news = Address(), list[str]()
    address.says("here")
    reading = a_reading(news)
    assert await reading.poll(address.question)
    assert reading.last == "here"
    assert news == []


async def test_who_is_silent_is_polled_in_the_background_and_wakes_the_pool_when_it_answers() -> None:
    address, news = Address(), list[str]()
    reading = a_reading(news)
    assert not await reading.poll(address.question)
    assert reading.pending
    assert not await reading.poll(address.question)
    address.says("late")
    await asyncio.sleep(0.01)
    assert news == ["!"]
    assert await reading.poll(address.question)
    assert reading.last == "late"
    assert address.asked == 1


async def test_the_last_answer_stays_known_while_a_new_one_is_waited_for() -> None:
    address, news = Address(), list[str]()
    reading = a_reading(news)
    address.says("here")
    await reading.poll(address.question)
    address.falls_silent()
    assert not await reading.poll(address.question)
    assert reading.last == "here"


async def test_an_answer_that_is_no_news_wakes_nobody() -> None:
    address, news = Address(), list[str]()
    reading = a_reading(news)
    address.says("nobody there")
    await reading.poll(address.question)
    address.falls_silent()
    await reading.poll(address.question)
    address.says("nobody there")
    await asyncio.sleep(0.01)
    assert news == []


async def test_a_refusal_that_is_no_news_wakes_nobody_and_its_end_does() -> None:
    address, news = Address(), list[str]()
    reading = a_reading(news)
    for _ in range(2):
        address.falls_silent()
        await reading.poll(address.question)
        address.answer.set_exception(KubeUnreachableError("away"))
        await asyncio.sleep(0.01)
        await reading.poll(address.question)
    assert news == ["!"]
    address.falls_silent()
    await reading.poll(address.question)
    address.says("back")
    await asyncio.sleep(0.01)
    assert news == ["!", "!"]


async def test_who_is_not_asked_any_more_wakes_nobody() -> None:
    address, news = Address(), list[str]()
    reading = a_reading(news)
    await reading.poll(address.question)
    reading.close()
    await asyncio.sleep(0)
    assert news == []
    assert address.answer.cancelled()


async def test_an_answer_is_as_old_as_its_question() -> None:
    address, now = Address(), 0.0
    session: Any = None
    reading: Reading[str] = Reading(Polling(session=session, clock=lambda: now))
    address.says("here")
    await reading.poll(address.question)
    address.falls_silent()
    now = 3.0
    await reading.poll(address.question)
    assert reading.age_seconds == 3.0
    now = 5.0
    address.says("late")
    await asyncio.sleep(0)
    await reading.poll(address.question)
    assert reading.age_seconds == 2.0


async def test_a_question_that_got_no_answer_says_why_and_the_last_answer_stays() -> None:
    address, news = Address(), list[str]()
    reading = a_reading(news)
    address.says("here")
    await reading.poll(address.question)
    address.falls_silent()
    address.answer.set_exception(KubeUnreachableError("away"))
    assert await reading.poll(address.question)
    assert (reading.last, reading.problem) == ("here", "away")
    address.says("back")
    await reading.poll(address.question)
    assert (reading.last, reading.problem) == ("back", None)

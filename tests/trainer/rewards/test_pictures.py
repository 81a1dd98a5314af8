"""Pictures of a conversation: what a judge is sent of them, and what is refused by its place."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web
from support.fake_worker import FakeWorker
from support.scripted_judge import ScriptedJudge

from rewardpool._rewards import Episode, open_reward
from rewardpool._rewards.judges import pictures
from rewardpool._rewards.judges.judge import PointwiseScorer, ReferenceScorer
from rewardpool._rewards.judges.listwise import ListComparer
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool.errors import ConfigError, InvalidSampleError

PNG = b"\x89PNG\r\n\x1a\n and so on"
AS_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
URL = "https://pictures.example/cat.png?size=8"


class PilImage:
    """Stands in for PIL's images, which write themselves."""

    mode = "CMYK"

    def convert(self, mode: str) -> "PilImage":
        converted = PilImage()
        converted.mode = mode
        return converted

    def save(self, to: Any, *, format: str) -> None:  # noqa: A002 - as PIL has it
        if (self.mode, format) != ("RGB", "PNG"):
            raise OSError("cannot write mode CMYK as PNG")
        to.write(PNG)


def picture(**block: Any) -> dict[str, Any]:
    return {"type": "image", **block}


def asks(*blocks: Mapping[str, Any]) -> Episode:
    content = [{"type": "text", "text": "What is in "}, *blocks, {"type": "text", "text": "?"}]
    return Episode(
        prompt=[{"role": "system", "content": "Look."}, {"role": "user", "content": content}],
        response="a cat",
        ground_truth="a dog",
        id="e1",
    )


async def sent(episode: Episode, **config: Any) -> Any:
    judge = ScriptedJudge(lambda *_: "Score: 9")
    await PointwiseScorer(judge, JudgeConfig(output="text", **config)).score(episode)
    return judge.asked[0][0][-1]["content"]


def urls(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


@pytest.mark.parametrize(
    ("block", "url"),
    [
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, URL),
        ({"type": "image_url", "image_url": URL}, URL),
        ({"type": "image_url", "image_url": {"url": AS_URL}}, AS_URL),
        (picture(url=URL), URL),
        (picture(image=URL), URL),
        (picture(image=PNG), AS_URL),
        (picture(bytes=PNG, path="cat.png"), AS_URL),
        (picture(image={"bytes": PNG, "path": None}), AS_URL),
        (picture(image=PilImage()), AS_URL),
        (picture(image=PilImage(), bytes=b"the same, encoded"), AS_URL),
        (picture(image=b"\xff\xd8\xff\xe0"), "data:image/jpeg;base64,/9j/4A=="),
        (picture(image=b"RIFF\x10\x00\x00\x00WEBP"), "data:image/webp;base64,UklGRhAAAABXRUJQ"),
    ],
)
async def test_a_judge_is_sent_a_picture_where_it_stands_in_the_conversation(block: Any, url: str) -> None:
    parts = await sent(asks(block), prompt="[{conversation}] {response}")
    assert parts == [
        {"type": "text", "text": "[system: Look.\n\nuser: What is in "},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "?] a cat"},
    ]


async def test_a_question_alone_brings_its_own_pictures() -> None:
    episode = asks(picture(url=URL), picture(image=PNG))
    assert urls(await sent(episode, prompt="{question} {response}")) == [URL, AS_URL]
    assert await sent(episode, prompt="{response} {reference}") == "a cat a dog"


async def test_pairs_and_lists_are_sent_the_pictures_too() -> None:
    judge = ScriptedJudge(lambda *_: "Winner: A")
    config = JudgeConfig(mode="pairwise", against="reference", output="text")
    await ReferenceScorer(judge, config).score(asks(picture(url=URL)))
    assert [urls(messages[-1]["content"]) for messages, _ in judge.asked] == [[URL], [URL]]
    judge = ScriptedJudge(lambda *_: "Scores: [1, 2]")
    members = [asks(picture(url=URL)), asks(picture(url=URL))]
    await ListComparer(judge, JudgeConfig(mode="listwise", output="text")).compare(members)
    assert urls(judge.asked[0][0][-1]["content"]) == [URL]


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (picture(), "has no picture but NoneType"),
        (picture(image=7), "has no picture but int"),
        (picture(image="cat.png"), "'cat.png', which is not an http"),
        (picture(image="file:///cat.png"), "does not see this machine's files"),
        (picture(url="data:text/html;base64,PGI+"), "is not an http"),
        (picture(url="data:image/png;base64,"), "is not an http"),
        (picture(url="https://me:secret@pictures.example/"), "with credentials"),
        (picture(image=b"<svg>"), "5 bytes that are no PNG"),
        (picture(image=b""), "0 bytes that are no PNG"),
    ],
)
async def test_a_picture_that_cannot_be_sent_is_refused_by_its_place(block: Any, problem: str) -> None:
    with pytest.raises(InvalidSampleError, match=rf"sample e1: prompt\[1\]\.content\[1\] .*{problem}") as refused:
        await sent(asks(block))
    assert "secret" not in str(refused.value)


async def test_pictures_that_are_too_large_for_a_worker_are_refused_with_both_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rewardpool._rewards.judges.judge_prompt.MAX_PICTURE_BYTES", 2 * len(AS_URL) - 1)
    assert urls(await sent(asks(picture(image=PNG))))
    with pytest.raises(InvalidSampleError, match=rf"pictures have {2 * len(AS_URL)} bytes as data: URLs"):
        await sent(asks(picture(image=PNG), picture(image=PNG)))


def test_a_workers_bound_leaves_room_for_the_words() -> None:
    assert pictures.MAX_PICTURE_BYTES < 16 * 1024 * 1024


@pytest.mark.parametrize("kind", ["video", "video_url", "input_audio"])
async def test_what_is_no_picture_is_refused_under_every_policy(kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"Episode\.prompt: sample e1 has content of type {kind}"):
        await sent(asks({"type": kind}))


@pytest.mark.parametrize("prompt", ["{response}", "{conversation} {response}"])
async def test_a_picture_in_a_responses_turns_is_refused(prompt: str) -> None:
    turns = [{"role": "tool", "content": [picture(url=URL)]}]
    with pytest.raises(ConfigError, match=r"Episode\.turns: sample e1 has content of type image"):
        await sent(Episode(prompt="?", response="", turns=turns, id="e1"), prompt=prompt)


async def test_what_is_on_the_wire_has_the_pictures_bytes() -> None:
    async def writes(_: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"content": '{"score": 9}'}}]})

    async with FakeWorker(writes) as worker, open_reward({"url": worker.url, "type": "Generative"}) as reward:
        assert (await reward.rate(asks(picture(image=PNG)))).total == 9.0
    [part] = urls(worker.requests[0]["messages"][-1]["content"])
    assert base64.b64decode(part.partition(",")[2]) == PNG

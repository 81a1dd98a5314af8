"""Judges that others have published, by the format in which they answer, and the meta reward model over their votes."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.fake_worker import FakeWorker
from support.judge_styles import STYLES, Style
from support.local_pool import POOL, on_this_machine, write_local_pool
from support.policy_answers import injected, quotes
from support.scripted_judge import ScriptedJudge

from rewardpool._client.answer import Judgement
from rewardpool._rewards import Episode, discriminative, open_reward
from rewardpool._rewards.answers.scale import Unreadable
from rewardpool._rewards.judges.judge import JudgeVerdict, PointwiseScorer, ReferenceScorer, verdicts_that_vote
from rewardpool._rewards.judges.listwise import ListComparer
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.reward_function import PartScore
from rewardpool.errors import ConfigError, InvalidSampleError, ScoreError

EPISODE = Episode(prompt="What is 2 + 2?", response="4", ground_truth="5", id="e1")


def read(style: Style, words: Judgement, *, responses: list[str] | None = None) -> Any:
    config = JudgeConfig(output="text", **style.config)
    answer: Any = config.list_format(style.count) if style.count else config.answer_format()
    return answer.read(words, responses=responses or [])


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_a_published_judges_answer_is_read_by_the_form_declared_for_it_or_unreadable(style: Style) -> None:
    if style.verdict is None:
        with pytest.raises(Unreadable, match="does not end with"):
            read(style, Judgement(style.words))
    else:
        assert read(style, Judgement(style.words)) == style.verdict


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_a_published_judges_answer_that_is_cut_off_is_unreadable(style: Style) -> None:
    for end in range(0, len(style.words), 7):
        with pytest.raises(Unreadable):
            read(style, Judgement(style.words[:end], is_cut_off=True))


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_no_text_of_the_policys_changes_a_published_judges_verdict(style: Style) -> None:
    found = Counter[str]()

    def check(texts: list[str], place: float, _: int) -> None:
        words = injected(style.words, " and ".join(texts), place)
        try:
            verdict = read(style, Judgement(words), responses=texts)
        except Unreadable:
            found["unreadable"] += 1
            return
        found["read"] += 1
        assert verdict == style.verdict, words

    quotes(check)()
    assert found["unreadable"] > 0
    assert (found["read"] > 0) == (style.verdict is not None)


RM_R1 = next(style for style in STYLES if style.name == "RM-R1, a chat")


@pytest.mark.parametrize(("verdicts", "value"), [("AB", 1.0), ("BA", 0.0), ("AA", 0.5)])
async def test_a_verdict_of_the_rm_r1_kind_is_read_in_both_orders(verdicts: str, value: float) -> None:
    said = iter(verdicts)
    judge = ScriptedJudge(lambda *_: RM_R1.words.replace("<answer>[[B]]", f"<answer>[[{next(said)}]]"))
    config = JudgeConfig(against="reference", output="text", **RM_R1.config)
    assert (await ReferenceScorer(judge, config).score(EPISODE)).value == value


async def test_a_verdict_that_is_none_is_asked_for_again_and_then_unscored() -> None:
    judge = ScriptedJudge(lambda *_: RM_R1.words.replace("<answer>[[B]]", "<answer>[[C]]"))
    config = JudgeConfig(against="reference", output="text", retries=1, **RM_R1.config)
    with pytest.raises(ScoreError, match="cannot be read, 2 times") as caught:
        await ReferenceScorer(judge, config).score(EPISODE)
    assert len(judge.asked) >= 2
    assert caught.value.fault == "verifier"


# The meta reward model


class MetaModel:
    """Scores an answer by a table; what is not in it has no score."""

    def __init__(self, scores: dict[str, float]) -> None:
        self.scores = scores
        self.asked: list[Episode] = []

    async def score(self, episode: Episode) -> PartScore:
        self.asked.append(episode)
        if episode.response not in self.scores:
            raise InvalidSampleError(episode.label, "is too long")
        return PartScore(self.scores[episode.response])


def meta(keep: int, **settings: Any) -> dict[str, Any]:
    return {"pool": "rl/meta", "keep": keep, **settings}


BOXED = ["Scores: \\boxed{9}", "Scores: \\boxed{3}", "Scores: \\boxed{5}", "Scores: \\boxed{1}"]
BOX = "\\boxed{{answer}}"


async def voted(scores: dict[str, float], *, keep: int = 2) -> tuple[PartScore, MetaModel]:
    left = list(BOXED)
    judge, model = ScriptedJudge(lambda *_: left.pop(0)), MetaModel(scores)
    config = JudgeConfig(output="text", form=BOX, votes=4, vote="mean", meta=meta(keep))
    return await PointwiseScorer(judge, config, meta=model).score(EPISODE), model


async def test_only_the_votes_that_the_meta_reward_model_rates_best_count() -> None:
    score, model = await voted(dict(zip(BOXED, [-1.0, 2.5, 0.5, -3.0], strict=True)))
    assert score.value == 4.0
    assert score.info["votes"] == [9, 3, 5, 1]
    assert score.info["meta"] == [-1.0, 2.5, 0.5, -3.0]
    [asked] = [episode for episode in model.asked if episode.response == BOXED[1]]
    assert "What is 2 + 2?" in asked.messages()[0]["content"]
    assert asked.messages()[-1] == {"role": "assistant", "content": BOXED[1]}


async def test_an_answer_without_a_meta_score_does_not_vote() -> None:
    score, _ = await voted({BOXED[0]: -1.0, BOXED[3]: -2.0}, keep=3)
    assert score.value == 5.0
    assert score.info["meta"] == [-1.0, None, None, -2.0]


async def test_without_any_meta_score_the_sample_is_unscored_and_says_why() -> None:
    with pytest.raises(
        ScoreError, match=r"none of 4 votes counts, the meta reward model scored none; last: .*too long"
    ):
        await voted({})


async def test_lists_and_pairs_have_their_votes_chosen_too() -> None:
    answers = {"\\boxed{9, 1}": 1.0, "\\boxed{2, 8}": -1.0}

    def in_turn() -> ScriptedJudge:
        left = list(answers)
        return ScriptedJudge(lambda *_: left.pop(0))

    members = [Episode(prompt="?", response=word, id=word) for word in ("left", "right")]
    config = JudgeConfig(mode="listwise", output="text", form=BOX, votes=2, vote="mean", meta=meta(1))
    listed = await ListComparer(in_turn(), config, meta=MetaModel(answers)).compare(members)
    assert [score.value for score in listed if isinstance(score, PartScore)] == [9, 1]
    unscored = await ListComparer(in_turn(), config, meta=MetaModel({})).compare(members)
    assert all(isinstance(error, ScoreError) for error in unscored)

    verdicts = iter(["[[A]]", "![[B]]", "[[B]]", "![[A]]"])
    config = JudgeConfig(
        mode="pairwise", against="reference", output="text", form="[[{answer}]]", votes=2, meta=meta(1)
    )
    model = MetaModel({"[[A]]": 1.0, "[[B]]": 1.0, "![[A]]": 0.0, "![[B]]": 0.0})
    pair = await ReferenceScorer(ScriptedJudge(lambda *_: next(verdicts)), config, meta=model).score(EPISODE)
    assert pair.value == 1.0
    assert len(pair.info["meta"]) == 4


@given(st.lists(st.none() | st.integers(-5, 5), min_size=1), st.integers(1, 8))
def test_no_vote_that_counts_is_rated_below_one_that_does_not(scores: list[int | None], keep: int) -> None:
    failed = InvalidSampleError("s", "failed")
    verdicts = [JudgeVerdict(i, "", 1, failed if score is None else float(score)) for i, score in enumerate(scores)]
    known = [score for score in scores if score is not None]
    if not known:
        with pytest.raises(ScoreError):
            verdicts_that_vote(verdicts, keep, label="s")
        return
    counted = [scores[verdict.value] for verdict in verdicts_that_vote(verdicts, keep, label="s")]
    assert counted == sorted(known, reverse=True)[:keep]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"meta": meta(1)}, "set votes to 2 or more"),
        ({"votes": 2, "meta": meta(3)}, "keep to at most as many"),
        ({"votes": 2, "meta": meta(1, on_failure="skip")}, "on_failure is the judge's part's"),
        ({"votes": 2, "meta": {"pool": "rl/meta"}}, "keep"),
    ],
)
def test_a_meta_model_that_cannot_choose_is_refused_when_the_config_is_read(config: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        JudgeConfig(**config)


class CharacterTokenizer:
    """Stands in for the meta reward model's: a token is a character."""

    chat_template = "any"
    bos_token_id = None

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) for character in text]}

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> str:
        return "".join(turn["content"] for turn in turns)


async def writes_as_many_blanks_as_the_seed(request: web.Request) -> web.Response:
    seed = (await request.json())["seed"]
    words = f"{' ' * seed}Score: {seed}"
    return web.json_response({"choices": [{"message": {"content": words}, "finish_reason": "stop"}]})


async def test_the_meta_pool_is_asked_for_each_answer_and_is_one_of_the_rewards_pools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discriminative, "load_tokenizer", lambda *_, **__: CharacterTokenizer())
    async with FakeWorker(*[writes_as_many_blanks_as_the_seed] * 4) as judge, FakeWorker() as model:
        asked = {
            "prompt": "Rate {response}.",
            "output": "text",
            "votes": 4,
            "vote": "mean",
            "seed": 1,
            "meta": {"url": model.url, "tokenizer": "a-folder", "keep": 2},
        }
        async with open_reward({"url": judge.url, "type": "Generative", "judge": asked}) as reward:
            rating = await reward.rate(EPISODE)
            assert len(reward.pools) == 2
    # A FakeWorker's score is the number of tokens, so the longest answers vote: those of the seeds 4 and 3.
    assert rating.total == 3.5
    sent = ["".join(map(chr, request["input"])) for request in model.requests if isinstance(request["input"][0], int)]
    assert sorted(sent) == sorted(f"Rate 4.{' ' * seed}Score: {seed}" for seed in (1, 2, 3, 4))


async def test_a_judge_is_no_meta_reward_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeWorker() as judge:
        on_this_machine(monkeypatch, tmp_path)
        write_local_pool(tmp_path, url=judge.url, model_type="Generative")
        asked = {"votes": 2, "meta": {"pool": POOL, "keep": 1}}
        spec = {"url": judge.url, "type": "Generative", "judge": asked}
        with pytest.raises(ConfigError, match=rf"reward\.judge\.meta\.pool: {POOL} is Generative"):
            async with open_reward(spec):
                pass

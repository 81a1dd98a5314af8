"""Remote rewards of responses that end in the policy's own special tokens, by real tokenizers that have these."""

import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import transformers
from aiohttp.test_utils import TestClient, TestServer
from support.byte_tokenizer import byte_tokenizer

from rewardpool._gateway.server import GatewaySettings, gateway_app
from rewardpool._policy.text import PolicyText
from rewardpool._rewards import open_reward
from rewardpool.errors import InvalidSampleError
from rewardpool.openrlhf import reward_function


class Policy(NamedTuple):
    """Special tokens of a family of models."""

    end: str
    pad: str
    stops: tuple[str, ...] = ()
    """Those of its generation config beside `end`."""


QWEN = Policy("<|im_end|>", "<|endoftext|>")
GEMMA = Policy("<eos>", "<pad>", ("<end_of_turn>",))
LLAMA_3 = Policy("<|eot_id|>", "<|finetune_right_pad_id|>")
MISTRAL = Policy("</s>", "[PAD]")
GLM = Policy("<|endoftext|>", "<|endoftext|>", ("<|user|>", "<|observation|>"))
GPT_OSS = Policy("<|return|>", "<|endoftext|>")

TURN = "<start_of_turn>user\nWhat is 6*7?<end_of_turn>\n<start_of_turn>model\n"
ENDINGS = [
    (QWEN, "What is 6*7?", "What is 6*7?42<|im_end|><|endoftext|><|endoftext|>", "42"),
    (GEMMA, "What is 6*7?", "What is 6*7?42<end_of_turn><pad><pad><pad>", "42"),
    (LLAMA_3, "What is 6*7?", "What is 6*7?42<|eot_id|><|finetune_right_pad_id|><|finetune_right_pad_id|>", "42"),
    (MISTRAL, "What is 6*7?", "What is 6*7?42</s>[PAD][PAD]", "42"),
    (GEMMA, "What is 6*7?", "<pad><pad>What is 6*7?42<end_of_turn>", "42"),
    (GEMMA, TURN, f"{TURN}42<end_of_turn><pad><pad>", "42"),
    (GEMMA, TURN, f"<pad><pad>{TURN}42<end_of_turn>", "42"),
    (MISTRAL, "Strike it through.", "Strike it through.<s>old</s></s>[PAD]", "<s>old</s>"),
    (MISTRAL, "Strike it through.", "Strike it through.<s>old</s>", "<s>old</s>"),
    (LLAMA_3, "How does Qwen end a turn?", "How does Qwen end a turn?It writes <|im_end|>", "It writes <|im_end|>"),
    (QWEN, "How do you end?", "How do you end?It writes <|im_end|><|im_end|>", "It writes <|im_end|>"),
    (GLM, "What is 6*7?", "What is 6*7?42<|user|>", "42"),
    (GLM, "What is 6*7?", "What is 6*7?42<|observation|>", "42"),
    (GPT_OSS, "What is 6*7?", "What is 6*7?42<|return|>", "42"),
]


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Policy], str]:
    """Makes the folder of a policy: its tokenizer and its generation config."""
    folders: dict[Policy, Path] = {}

    def folder(policy: Policy) -> str:
        if policy not in folders:
            folders[policy] = tmp_path_factory.mktemp("policy")
            turns = "{% for message in messages %}<start_of_turn>{{ 'model' if message.role == 'assistant' else 'user'"
            turns += " }}\n{{ message.content }}<end_of_turn>\n{% endfor %}<start_of_turn>model\n"
            tokenizer = byte_tokenizer(template=turns, controls=policy.stops, end=policy.end)
            tokenizer.add_special_tokens({"pad_token": policy.pad})
            tokenizer.save_pretrained(folders[policy])
            stops = tokenizer.convert_tokens_to_ids([policy.end, *policy.stops])
            transformers.GenerationConfig(eos_token_id=stops).save_pretrained(folders[policy])
        return str(folders[policy])

    return folder


def said(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """Score 1 for exactly the right words."""
    return float(solution_str == ground_truth)


SAID = {"function": said, "run_in": "threads"}
"""In processes it would import this module, and transformers with it, for each of the tests."""


@functools.cache
def text_of(folder: str | None) -> PolicyText:
    return PolicyText.load(folder, field="--policy-tokenizer")


@functools.cache
def function_of(folder: str | None) -> Any:
    return reward_function(SAID, policy_tokenizer=folder)


async def through_the_gateway(policy: str | None, query: str, prompt: str, label: str) -> tuple[int, Any]:
    """The status and the answer of a gateway."""
    app = gateway_app(open_reward(SAID), GatewaySettings(text=text_of(policy)))
    body = {"query": [query], "prompts": [prompt], "labels": [label]}
    async with TestClient(TestServer(app)) as client, client.post("/get_reward", json=body) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(("policy", "prompt", "query", "words"), ENDINGS)
async def test_a_gateway_that_knows_the_policy_scores_its_words_alone(
    folder_of: Callable[[Policy], str], policy: Policy, prompt: str, query: str, words: str
) -> None:
    status, answer = await through_the_gateway(folder_of(policy), query, prompt, words)
    assert (status, answer["rewards"]) == (200, [1.0])


@pytest.mark.parametrize(("policy", "prompt", "query", "words"), ENDINGS)
def test_so_does_a_function_file(
    folder_of: Callable[[Policy], str], policy: Policy, prompt: str, query: str, words: str
) -> None:
    assert function_of(folder_of(policy))([query], [prompt], [words])["rewards"].tolist() == [1.0]


async def test_one_that_does_not_names_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    _, prompt, query, words = ENDINGS[1]
    status, answer = await through_the_gateway(None, query, prompt, words)
    assert (status, "name the policy's tokenizer by --policy-tokenizer" in answer["error"]) == (422, True)
    with caplog.at_level(logging.CRITICAL), pytest.raises(InvalidSampleError, match=r"\$REWARDPOOL_POLICY_TOKENIZER"):
        function_of(None)([query], [prompt], [words])

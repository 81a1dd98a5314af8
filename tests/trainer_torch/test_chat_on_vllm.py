"""What a real vLLM makes of a conversation whose tokenizer and chat template both know a BOS."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from support.byte_tokenizer import BOS, TEMPLATE_WITH_BOS, byte_tokenizer
from support.processes import http
from support.vllm_server import VllmServer, quickstart_pool, running_vllm

from rewardpool._rewards import Episode, open_reward
from rewardpool.errors import ConfigError
from rewardpool_api import RewardPoolSpec

# test_chat.py has the tokens of the same conversations, and the client's tests have vLLM's scores of tokens.
pytestmark = [pytest.mark.real, pytest.mark.long]

EPISODE = Episode(
    prompt=[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "2 + 2?"}], response="4"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random reward model whose tokenizer puts a BOS in front of every text, and whose template writes one too."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = byte_tokenizer(template=TEMPLATE_WITH_BOS, adds_bos=True)
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
    )
    transformers.Qwen2ForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A real vLLM that serves it."""
    spec = quickstart_pool().spec.model_dump(by_alias=True, exclude_unset=True)
    spec["model"]["source"] = f"file://{model}"
    with running_vllm(RewardPoolSpec.model_validate(spec), "bos", tmp_path_factory.mktemp("vllm")) as running:
        yield running


def score_of(server: VllmServer, given: Any) -> tuple[float, int]:
    """The raw logit that vLLM gives to a text or to token ids, and how many tokens it saw."""
    request = {"model": server.served_name, "input": given}
    answer = http("POST", server.url + "/v1/embeddings", request, key=server.key)[2]
    return float(answer["data"][0]["embedding"][-1]), int(answer["usage"]["prompt_tokens"])


def spec_of(server: VllmServer, folder: Path, **fields: Any) -> dict[str, Any]:
    """A config of a reward by it."""
    key_file = folder / "key"
    key_file.write_text(server.key)
    found = {"url": server.url, "key_file": str(key_file), "served_name": server.served_name}
    return {**found, "type": "Discriminative", **fields}


async def test_a_conversation_has_one_bos_where_its_text_would_have_two(
    server: VllmServer, model: Path, tmp_path: Path
) -> None:
    text = transformers.AutoTokenizer.from_pretrained(model).apply_chat_template(EPISODE.messages(), tokenize=False)
    (twice, tokens_twice), (once, tokens_once) = score_of(server, text), score_of(server, text.removeprefix(BOS))
    async with open_reward(spec_of(server, tmp_path, tokenizer=str(model))) as reward:
        rating = await reward.rate(EPISODE)
    assert tokens_twice == tokens_once + 1
    assert rating.total == pytest.approx(once, abs=1e-5)
    assert abs(once - twice) > 1e-4


async def test_a_tokenizer_from_elsewhere_gives_no_score(server: VllmServer, tmp_path: Path) -> None:
    other = byte_tokenizer(template=TEMPLATE_WITH_BOS, adds_bos=True)
    other.add_tokens(["the", "return"])
    async with open_reward(spec_of(server, tmp_path, on_failure="skip"), tokenizer=other) as reward:
        with pytest.raises(ConfigError, match=r"reward\.tokenizer: .* it is another model's"):
            await reward.rate(EPISODE)

"""The client, a real router and a real vLLM that serves a reward model."""

from pathlib import Path

import pytest
from support.fleet import Fleet
from support.processes import http
from support.vllm_server import VllmServer

from rewardpool import Outcome, Pool, RewardConfig, Sample, Scored, Unscored
from rewardpool.errors import SampleTooLongError

pytestmark = pytest.mark.real

TEXTS = [f"What is {number} plus one? It is {number + 1}." for number in range(20)]


def logit(server: VllmServer, text: str) -> float:
    """What the worker itself says of a text, past router and client."""
    request = {"model": server.served_name, "input": text}
    return float(http("POST", server.url + "/v1/embeddings", request, key=server.key)[2]["data"][0]["embedding"][-1])


async def stream(server: VllmServer, folder: Path, texts: list[str]) -> dict[int, Outcome]:
    """What becomes of the texts under the policy `skip`."""
    async with Fleet(folder, workers=0, others=[server.url], key=server.key) as fleet:
        config = RewardConfig(
            url=fleet.router.url, key_file=fleet.key_file, served_name=server.served_name, on_failure="skip"
        )
        async with Pool(config) as pool:
            return {index: outcome async for index, outcome in pool.stream(Sample(text=text) for text in texts)}


async def test_scores_are_the_models_raw_logits(vllm_server: VllmServer, tmp_path: Path) -> None:
    outcomes = await stream(vllm_server, tmp_path, TEXTS)
    scores = [outcome.value for _, outcome in sorted(outcomes.items()) if isinstance(outcome, Scored)]
    assert scores == pytest.approx([logit(vllm_server, text) for text in TEXTS], abs=1e-4)


async def test_a_sample_longer_than_the_model_takes_is_named_with_both_lengths_and_the_others_go_on(
    vllm_server: VllmServer, tmp_path: Path
) -> None:
    outcomes = await stream(vllm_server, tmp_path, [*TEXTS, "word " * 2000])
    failed = outcomes.pop(len(TEXTS))
    assert isinstance(failed, Unscored)
    assert isinstance(failed.error, SampleTooLongError)
    assert failed.error.sample == f"#{len(TEXTS)}"
    assert failed.error.limit_tokens == vllm_server.max_model_len
    assert (failed.error.length_tokens or 0) >= 2000
    assert all(isinstance(outcome, Scored) for outcome in outcomes.values())

"""Rollouts from a real vLLM, whose weights change before, between and underneath them."""

import asyncio
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from support import tiny_policy
from support.fleet import eventually, server_python
from support.torchrun import TESTS

from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.ranks import Ranks, join_job
from rewardpool_train.actor.rollout import VllmEngine
from rewardpool_train.actor.rollout.vllm_client import SocketAddress
from rewardpool_train.actor.rollout.vllm_server import running_vllm
from rewardpool_train.actor.tokens import Forward, compute_log_probs
from rewardpool_train.config import VllmConfig
from rewardpool_train.pipeline.parts import GroupTask

pytestmark = pytest.mark.real

START_SECONDS = 300.0
"""Several times what an idle machine with two cores needs; other tests may run beside."""
POSITIONS = 512
TEMPERATURE = 0.7
TOLERANCE = 1e-3
"""Between the log-probabilities of vLLM and of transformers in float32; those of two policies are some units apart."""
LONG = 300
"""Tokens of a response that lasts over two pushes."""
SLOW_SAMPLING = "support.slow_sampling:SlowSampling"
TOKENS_SAMPLED = "vllm:generation_tokens_total"


class Source:
    """Weights of a policy that no FSDP has sharded."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def copy_weights_to(self, model: Any) -> None:
        model.load_state_dict(self._policy.state_dict())

    def save_pretrained(self, folder: Path) -> None:
        self._policy.save_pretrained(folder)


def policy_of(version: int, *, endless: bool = False) -> Any:
    """The policy after that many updates, each of which makes it quite another one.

    An endless one never samples the end token: one hidden unit is always large, and speaks against that token alone.
    """
    policy = tiny_policy.make_policy(seed=version, hidden_size=64, positions=POSITIONS).eval()
    if endless:
        with torch.no_grad():
            policy.model.embed_tokens.weight[:, 0] = 20.0
            policy.lm_head.weight[:, 0] = 0.0
            policy.lm_head.weight[tiny_policy.END] = torch.eye(64)[0] * -10.0
    return policy


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with join_job(deadline_seconds=60) as alone:
        yield alone


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("policy")
    policy_of(0).save_pretrained(folder)
    tiny_policy.make_tokenizer().save_pretrained(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        with running_vllm(
            folder,
            python=server_python(),
            arguments=["--dtype", "float32", "--enforce-eager", "--logits-processors", SLOW_SAMPLING],
            log_file=folder / "vllm.log",
            deadline_seconds=START_SECONDS,
        ) as path:
            yield path


@pytest.fixture
def engine(socket: Path, ranks: Ranks) -> VllmEngine:
    engine = engine_at(socket, ranks)
    engine.load(Source(policy_of(0)), 0)
    return engine


def engine_at(socket: Path, ranks: Ranks, *, max_new_tokens: int = 32) -> VllmEngine:
    return VllmEngine(
        SocketAddress(socket),
        settings=VllmConfig(),
        ranks=ranks,
        encode=lambda prompt: [int(digit) for digit in prompt.prompt],
        end_ids=[tiny_policy.END],
        max_new_tokens=max_new_tokens,
        temperature=TEMPERATURE,
    )


def tasks(*prompts: str, size: int = 4) -> list[GroupTask[Prompt]]:
    return [
        GroupTask(index=index, prompt=Prompt(prompt=prompt), size=size, version=0)
        for index, prompt in enumerate(prompts)
    ]


async def sampled(engine: VllmEngine, asked: Sequence[GroupTask[Prompt]]) -> list[Trajectory]:
    rollouts: list[Trajectory] = []
    await engine.roll_out(asked, lambda task, member, rollout: rollouts.append(rollout))
    return sorted(rollouts, key=lambda rollout: (rollout.group, rollout.member))


async def tokens_sampled(socket: Path) -> float:
    """How many tokens the server has sampled since its start, by its own count."""
    async with (
        aiohttp.ClientSession("http://vllm", connector=aiohttp.UnixConnector(str(socket))) as session,
        session.get("/metrics") as answer,
    ):
        families = text_string_to_metric_families(await answer.text())
    [total] = [sample.value for family in families for sample in family.samples if sample.name == TOKENS_SAMPLED]
    return total


async def more_are_sampled(socket: Path, tokens: int) -> None:
    """Wait until the server has sampled so many more tokens than now."""
    enough = await tokens_sampled(socket) + tokens

    async def sampled() -> bool:
        return await tokens_sampled(socket) >= enough

    await eventually(sampled, what=f"vLLM has sampled {tokens} tokens")


def distances(rollouts: Sequence[Trajectory], policy: Any) -> list[torch.Tensor]:
    """How far each token's log-probability is from that by a policy."""
    forward = Forward(pad_id=tiny_policy.PAD, device=torch.device("cpu"), temperature=TEMPERATURE)
    expected = compute_log_probs(policy, rollouts, forward=forward)
    return [(torch.tensor(r.log_probs) - row).abs() for r, row in zip(rollouts, expected, strict=True)]


async def test_every_member_is_sampled_once_up_to_its_end_token(engine: VllmEngine) -> None:
    rollouts = await sampled(engine, tasks("123", "4", "56"))
    assert [(r.group, r.member) for r in rollouts] == [(g, m) for g in range(3) for m in range(4)]
    assert [r.prompt_ids for r in rollouts] == [ids for ids in ([1, 2, 3], [4], [5, 6]) for _ in range(4)]
    for rollout in rollouts:
        assert list(rollout.response_ids).count(tiny_policy.END) == rollout.ended
        assert rollout.ended or len(rollout.response_ids) == 32


async def test_a_push_changes_whose_probabilities_tokens_are_drawn_by(engine: VllmEngine) -> None:
    before = await sampled(engine, tasks("123", "4"))
    await asyncio.to_thread(engine.load, Source(policy_of(1)), 1)
    after = await sampled(engine, tasks("123", "4"))
    assert ({r.version for r in before}, {r.version for r in after}, engine.version) == ({0}, {1}, 1)
    assert max(row.max() for row in distances(before, policy_of(0))) < TOLERANCE
    assert max(row.max() for row in distances(after, policy_of(1))) < TOLERANCE
    assert max(row.max() for row in distances(after, policy_of(0))) > 0.5


async def test_responses_under_way_are_kept_over_two_pushes_and_each_token_says_whose_it_is(
    socket: Path, ranks: Ranks
) -> None:
    engine = engine_at(socket, ranks, max_new_tokens=LONG)
    policies = [policy_of(version, endless=True) for version in range(3)]
    await asyncio.to_thread(engine.load, Source(policies[0]), 0)
    rolling = asyncio.create_task(sampled(engine, tasks("123", "4", size=8)))
    for version in (1, 2):
        await more_are_sampled(socket, 16 * 20)
        await asyncio.to_thread(engine.load, Source(policies[version]), version)
    rollouts = await rolling
    by_version = [distances(rollouts, policy) for policy in policies]
    for at, rollout in enumerate(rollouts):
        versions = list(rollout.token_versions or [])
        assert len(rollout.response_ids) == len(rollout.log_probs or []) == len(versions) == LONG
        assert versions == sorted(versions)
        assert (versions[0], versions[-1], rollout.version) == (0, 2, 0)
        # Had a token been lost or repeated, those after it would not have the probability that they were drawn by.
        assert max(by_version[version][at][token] for token, version in enumerate(versions)) < TOLERANCE


async def test_a_cancelled_rollout_leaves_the_server_to_others(socket: Path, ranks: Ranks) -> None:
    engine = engine_at(socket, ranks, max_new_tokens=LONG)
    await asyncio.to_thread(engine.load, Source(policy_of(0, endless=True)), 0)
    rolling = asyncio.create_task(sampled(engine, tasks("1", size=16)))
    await asyncio.sleep(0.2)
    rolling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rolling
    assert len(await sampled(engine, tasks("1", size=1))) == 1


def test_nobody_else_may_enter_the_folder_of_the_socket(socket: Path) -> None:
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700

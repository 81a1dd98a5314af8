"""The examples of verl's trainers: their command lines make configs that verl accepts, and by which the pool scores.

What they would train needs GPUs; what is run here of verl is its own command line up to the composed config, its own
validation, its v1 trainers' constructors, its role mappings, and its agent loop worker and reward loop on Ray.
"""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf
from support.fleet import ROOT
from support.local_machine import LocalMachine
from support.reward_functions import expected_score
from support.verl_job import batch_of
from support.verl_rollouts import FakeLlmServerClient, prompts_of, save_policy
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopWorker
from verl.experimental.reward_loop import RewardLoopManager, migrate_legacy_reward_impl
from verl.experimental.separation.utils import create_resource_pool_manager, create_role_worker_mapping
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import validate_config

from rewardpool._client.threads.shared import shared
from rewardpool.verl.settings import plain_config, read_settings
from rewardpool_api import names

pytestmark = pytest.mark.real
EXAMPLES = ROOT / "examples" / "verl"
V1 = ["sync", "colocate_async", "separate_async"]
APART = ["one_step_off", "fully_async"]
"""With mains of their own."""
ALIKE = sorted({*V1, *APART} - {"sync", "fully_async"})
"""Each of them is like one of the two others in all that the plugin sees."""


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("tiny-policy"))


@cache
def composed(name: str, policy: Path, pool: str) -> Any:
    """The config that verl's own main makes of an example, which it prints instead of training."""
    environment = {"MODEL": str(policy), "POOL": pool, "PYTHON": sys.executable, "HOME": "/nonexistent"}
    command = [str(EXAMPLES / f"{name}.sh"), "+reward.rewardpool.announce=false", "--cfg", "job"]
    environment["PATH"] = "/usr/bin:/bin"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    text = done.stdout[done.stdout.index("model_engine:") :]
    return migrate_legacy_reward_impl(OmegaConf.create(text))


def in_turn(examples: list[str]) -> list[Any]:
    """Those examples as parameters: verl takes twenty seconds for a config."""
    return [pytest.param(name, marks=pytest.mark.long) if name in ALIKE else name for name in examples]


@pytest.fixture(params=in_turn([*V1, *APART]))
def config(request: pytest.FixtureRequest, policy: Path, function_pool: str) -> Any:
    return composed(request.param, policy, function_pool).copy()


@pytest.fixture
def at_the_machine(machine: LocalMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.ENV_STATE_DIR, machine.environ[names.ENV_STATE_DIR])
    monkeypatch.setenv("KUBECONFIG", str(machine.home / "none"))


def test_verl_and_the_plugin_accept_its_config(config: Any, function_pool: str) -> None:
    if config.data.train_batch_size:  # the fully async trainer, which has no batches, does not call it either
        validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    settings = read_settings(plain_config(config))
    assert (settings.spec["pool"], settings.inline) == (function_pool, True)


@pytest.mark.parametrize("name", in_turn(V1))
def test_the_v1_trainer_that_it_names_is_made_of_it(name: str, policy: Path, function_pool: str) -> None:
    config = composed(name, policy, function_pool)
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    assert trainer.trainer_mode == name


@pytest.mark.parametrize("name", in_turn(APART))
def test_trainer_and_rollout_have_gpus_of_their_own(name: str, policy: Path, function_pool: str) -> None:
    config = composed(name, policy, function_pool)
    roles, _ = create_role_worker_mapping(config)
    pools = create_resource_pool_manager(config, roles.keys()).resource_pool_spec
    assert pools == {"trainer_pool": [4]}
    assert (config.rollout.nnodes, config.rollout.n_gpus_per_node) == (1, 4)
    assert not config.actor_rollout_ref.hybrid_engine


@pytest.mark.usefixtures("at_the_machine")
async def test_its_agent_loops_score_by_the_pool(config: Any) -> None:
    worker = AgentLoopWorker(config, FakeLlmServerClient(), reward_loop_worker_handles=[object()])
    try:
        written = await worker.generate_sequences(DataProto.from_dict(non_tensors=prompts_of(["12", "345"])))
    finally:
        await shared().close()
    assert written.batch["rm_scores"].sum(dim=-1).tolist() == pytest.approx(
        [expected_score("12"), expected_score("345")]
    )


@pytest.fixture(scope="module")
def on_ray(machine: LocalMachine) -> Iterator[None]:
    state = {names.ENV_STATE_DIR: machine.environ[names.ENV_STATE_DIR], "KUBECONFIG": str(machine.home / "none")}
    state["PYTHONPATH"] = machine.environ["PYTHONPATH"]
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": state})
    yield
    ray.shutdown()


@pytest.mark.usefixtures("on_ray")
def test_its_reward_loop_scores_a_batch_by_the_pool(config: Any) -> None:
    loop = RewardLoopManager(config)
    try:
        scored = loop.compute_rm_score(batch_of(["12", "345", "6"]))
    finally:
        for worker in loop.reward_loop_workers:  # their names are verl's, the same for every config
            ray.kill(worker)
    expected = [expected_score(text) for text in ("12", "345", "6")]
    assert scored.batch["rm_scores"].sum(dim=-1).tolist() == pytest.approx(expected)

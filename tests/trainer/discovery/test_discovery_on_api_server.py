"""Discovery against a real API server: the object's status, the key's Secret, and the rights a training job has."""

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.control_plane import ControlPlane
from rewardpool import RewardConfig
from rewardpool._discovery.find import find_pool
from rewardpool.errors import PoolAccessError, PoolNotFoundError, PoolNotReadyError

pytestmark = pytest.mark.real

NAMESPACE = "trainers"
POOLS = "rewardpools.rewardpool.dev"
Environment = dict[str, str]
TrainerOf = Callable[..., Environment]


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The API server with a namespace and a key in it; the tests do the operator's work by hand."""
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl("create", "secret", "generic", "skywork-key", "-n", NAMESPACE, "--from-literal=key=the-key")
    yield control_plane
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def trainer(plane: ControlPlane, tmp_path: Path) -> TrainerOf:
    """Makes the environment of a job whose service account may get the given resources."""
    account = f"trainer-{secrets.token_hex(4)}"

    def make(*resources: str) -> Environment:
        plane.kubectl("create", "serviceaccount", account, "-n", NAMESPACE)
        for resource in resources:
            role = f"{account}-{resource.partition('.')[0]}"
            plane.kubectl("create", "role", role, "-n", NAMESPACE, "--verb=get", f"--resource={resource}")
            plane.kubectl(
                "create",
                "rolebinding",
                role,
                "-n",
                NAMESPACE,
                f"--role={role}",
                f"--serviceaccount={NAMESPACE}:{account}",
            )
        token = plane.kubectl("create", "token", account, "-n", NAMESPACE).strip()
        return {
            "KUBECONFIG": str(plane.kubeconfig_for(account, token)),
            "REWARDPOOL_STATE_DIR": str(tmp_path),
        }

    return make


@pytest.fixture
def pool(plane: ControlPlane) -> Iterator[str]:
    """A RewardPool without a status."""
    manifest = {
        "apiVersion": "rewardpool.dev/v1alpha1",
        "kind": "RewardPool",
        "metadata": {"name": "skywork", "namespace": NAMESPACE},
        "spec": {"model": {"source": "hf://org/model"}, "replicas": 1},
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    yield f"{NAMESPACE}/skywork"
    plane.kubectl("delete", "rewardpool", "skywork", "-n", NAMESPACE)


def make_ready(plane: ControlPlane) -> None:
    status: dict[str, Any] = {
        "url": "http://skywork-router.trainers.svc:8080",
        "replicas": 1,
        "model": {"type": "Discriminative", "servedName": "skywork", "maxModelLen": 4096},
        "auth": {"secretName": "skywork-key"},
        "conditions": [
            {"type": "Serving", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
    }
    patch = json.dumps({"status": status})
    plane.kubectl(
        "patch", "rewardpool", "skywork", "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", patch
    )


async def test_one_key_finds_url_model_and_key(plane: ControlPlane, pool: str, trainer: TrainerOf) -> None:
    make_ready(plane)
    found = await find_pool(RewardConfig(pool=pool), environ=trainer(POOLS, "secrets"))
    assert (found.url, found.key, found.max_model_len) == ("http://skywork-router.trainers.svc:8080", "the-key", 4096)


async def test_a_job_without_the_right_to_the_pool_is_told_which(pool: str, trainer: TrainerOf) -> None:
    with pytest.raises(
        PoolAccessError, match=r"no right to get rewardpools\.rewardpool\.dev/skywork in namespace trainers"
    ):
        await find_pool(RewardConfig(pool=pool), environ=trainer())


async def test_a_job_without_the_right_to_the_key_is_told_which(
    plane: ControlPlane, pool: str, trainer: TrainerOf
) -> None:
    make_ready(plane)
    with pytest.raises(PoolAccessError, match="no right to get secrets/skywork-key in namespace trainers"):
        await find_pool(RewardConfig(pool=pool), environ=trainer(POOLS))


async def test_a_pool_that_is_not_there_is_named_with_where_it_was_looked_for(trainer: TrainerOf) -> None:
    with pytest.raises(
        PoolNotFoundError, match=r"no rewardpools.*/typo in namespace trainers.*there is no .*pool\.json"
    ):
        await find_pool(RewardConfig(pool=f"{NAMESPACE}/typo"), environ=trainer(POOLS))


async def test_a_pool_that_the_operator_has_not_seen_is_not_ready(pool: str, trainer: TrainerOf) -> None:
    with pytest.raises(PoolNotReadyError, match="is the operator running"):
        await find_pool(RewardConfig(pool=pool, wait_seconds=1), environ=trainer(POOLS))


async def test_a_pool_that_becomes_ready_is_waited_for(plane: ControlPlane, pool: str, trainer: TrainerOf) -> None:
    environ = trainer(POOLS, "secrets")
    waiting = asyncio.create_task(find_pool(RewardConfig(pool=pool, wait_seconds=30), environ=environ))
    await asyncio.sleep(1.5)
    assert not waiting.done()
    await asyncio.to_thread(make_ready, plane)
    assert (await waiting).key == "the-key"

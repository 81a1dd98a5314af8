"""Demands as Leases on a real API server, by a service account with the rights that a training job is given."""

import asyncio
import json
import logging
import secrets
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.control_plane import ControlPlane
from cluster.processes import wait_until
from rewardpool import JobDemand, Pool, RewardConfig
from rewardpool._demand.writers import LeaseWriter, NotWrittenError
from rewardpool_api.demand import LEASE_SECONDS, Demand, parse_demand

pytestmark = pytest.mark.real

NAMESPACE = "demands"
LEASE = "demand-skywork.grpo-7"
CONFIG = RewardConfig(pool=f"{NAMESPACE}/skywork", job="grpo-7")
SECONDS = 60.0
"""Deadline of what should happen within some."""

BecomesTrainer = Callable[..., None]


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    yield control_plane
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(autouse=True)
def _in_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of the cluster's Services lead somewhere, as in its pods."""
    resolve = socket.getaddrinfo

    def known(host: Any, *args: Any, **named: Any) -> Any:
        return resolve("127.0.0.1" if str(host).endswith(".svc") else host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", known)


@pytest.fixture
def uid(plane: ControlPlane) -> Iterator[str]:
    """Of a RewardPool that is ready, as far as its status goes."""
    manifest = {
        "apiVersion": "rewardpool.dev/v1alpha1",
        "kind": "RewardPool",
        "metadata": {"name": "skywork", "namespace": NAMESPACE},
        "spec": {"model": {"source": "hf://org/model"}},
    }
    serving = {"type": "Serving", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    model = {"type": "Discriminative", "servedName": "skywork"}
    status = {
        "url": f"http://skywork-router.{NAMESPACE}.svc:8080",
        "replicas": 1,
        "model": model,
        "conditions": [serving],
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(manifest))
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    plane.kubectl("patch", "rewardpool", "skywork", "-n", NAMESPACE, *patch)
    made = plane.kubectl("get", "rewardpool", "skywork", "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}")
    yield made
    plane.kubectl("delete", "rewardpool", "skywork", "-n", NAMESPACE, "--ignore-not-found")
    plane.kubectl("delete", "lease", LEASE, "-n", NAMESPACE, "--ignore-not-found")


@pytest.fixture
def become_trainer(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> BecomesTrainer:
    """Makes this process one whose account may get pools and, with these verbs, handle Leases."""

    def become(lease_verbs: str = "") -> None:
        account = f"trainer-{secrets.token_hex(4)}"
        plane.kubectl("create", "serviceaccount", account, "-n", NAMESPACE)
        rights = {"rewardpools.rewardpool.dev": "get", "leases.coordination.k8s.io": lease_verbs}
        for resource, verbs in rights.items():
            if verbs:
                role = (f"{account}-{resource.partition('.')[0]}", "-n", NAMESPACE)
                plane.kubectl("create", "role", *role, f"--verb={verbs}", f"--resource={resource}")
                who = f"--serviceaccount={NAMESPACE}:{account}"
                plane.kubectl("create", "rolebinding", *role, f"--role={role[0]}", who)
        token = plane.kubectl("create", "token", account, "-n", NAMESPACE).strip()
        monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig_for(account, token)))

    return become


@pytest.fixture
def trainer(become_trainer: BecomesTrainer) -> None:
    """This process has the rights that the chart's `trainers` give, and no other."""
    become_trainer("create,patch")


async def lease(plane: ControlPlane) -> dict[str, Any]:
    """The job's Lease; empty while there is none."""
    how = ("-n", NAMESPACE, "-o", "json", "--show-managed-fields", "--ignore-not-found")
    found = await asyncio.to_thread(plane.kubectl, "get", "lease", LEASE, *how)
    return json.loads(found) if found else {}


def demand_in(found: dict[str, Any]) -> Demand:
    return parse_demand(found["metadata"]["annotations"]["rewardpool.dev/demand"])


async def renewed(demand: JobDemand, *, times: int = 1) -> None:
    """Wait until it was said so many times more."""
    enough = demand.report().renewals + times
    await asyncio.to_thread(
        wait_until, lambda: demand.report().renewals >= enough, what="a renewal", deadline_seconds=SECONDS
    )


@pytest.mark.usefixtures("trainer")
async def test_a_job_is_a_lease_that_belongs_to_the_pool(plane: ControlPlane, uid: str) -> None:
    async with Pool(CONFIG) as pool:
        with pool.demand(samples=1024) as demand:
            await renewed(demand)
            demand.rollout()
            await renewed(demand)
            found = await lease(plane)
        ended = await lease(plane)
    metadata, spec = found["metadata"], found["spec"]
    assert demand_in(found) == Demand(job="grpo-7", phase="Rollout", samples=1024, scored=0)
    assert [(owner["kind"], owner["uid"]) for owner in metadata["ownerReferences"]] == [("RewardPool", uid)]
    assert metadata["labels"] == {"rewardpool.dev/pool": "skywork", "rewardpool.dev/component": "demand"}
    assert [(fields["manager"], fields["operation"]) for fields in metadata["managedFields"]] == [
        ("rewardpool-trainer", "Apply")
    ]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("grpo-7", LEASE_SECONDS)
    assert demand_in(ended).phase == "Ended"


@pytest.mark.usefixtures("trainer", "uid")
async def test_every_renewal_moves_the_time_that_the_api_server_writes_down(plane: ControlPlane) -> None:
    async with Pool(CONFIG) as pool:
        with pool.demand() as demand:
            await renewed(demand)
            first = await lease(plane)
            await renewed(demand)
            second = await lease(plane)
    times = [found["metadata"]["managedFields"][0]["time"] for found in (first, second)]
    assert times[0] < times[1]
    assert demand_in(first) == demand_in(second)


@pytest.mark.usefixtures("trainer", "uid")
async def test_a_lease_that_somebody_removed_is_there_again_at_the_next_word(plane: ControlPlane) -> None:
    async with Pool(CONFIG) as pool:
        with pool.demand() as demand:
            await renewed(demand)
            await asyncio.to_thread(plane.kubectl, "delete", "lease", LEASE, "-n", NAMESPACE)
            demand.rollout()
            await renewed(demand)
            assert demand_in(await lease(plane)).phase == "Rollout"


@pytest.mark.usefixtures("trainer", "uid")
async def test_the_lease_goes_with_the_pool(plane: ControlPlane) -> None:
    async with Pool(CONFIG) as pool:
        with pool.demand() as demand:
            await renewed(demand)
    assert await lease(plane)
    await asyncio.to_thread(plane.kubectl, "delete", "rewardpool", "skywork", "-n", NAMESPACE)
    gone = ("wait", "--for=delete", f"lease/{LEASE}", "-n", NAMESPACE, f"--timeout={SECONDS:.0f}s")
    await asyncio.to_thread(plane.kubectl, *gone)


@pytest.mark.parametrize("verbs", ["", "get", "patch"])  # without `create` the first one cannot be made
@pytest.mark.usefixtures("uid")
async def test_a_missing_right_is_said_once_with_the_role_that_gives_it(
    become_trainer: BecomesTrainer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    verbs: str,
) -> None:
    monkeypatch.setattr("rewardpool._demand.announcer.REFUSED_SECONDS", 0.5)
    become_trainer(verbs)
    async with Pool(CONFIG) as pool:
        with pool.demand() as demand:
            await asyncio.to_thread(
                wait_until, lambda: "any more" in caplog.text, what="the last refusal", deadline_seconds=SECONDS
            )
        report = demand.report()
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"no right to create and patch leases.coordination.k8s.io/{LEASE} in namespace {NAMESPACE} (403)" in warning
    assert "the Helm chart's `trainers`, which binds a rewardpool-trainer role" in warning
    assert "where an entry lists `jobs`, grpo-7 must be one of them" in warning
    assert (report.announced, report.renewals) == (False, 0)


@pytest.mark.usefixtures("trainer", "uid")
async def test_an_api_server_that_was_away_hears_of_the_job_again(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    async with Pool(CONFIG) as pool:
        with pool.demand() as demand:
            await renewed(demand)
            with plane.api_server_away():
                demand.rollout()
                failures = demand.report().failures
                await asyncio.to_thread(
                    wait_until,
                    lambda: demand.report().failures >= failures + 2,
                    what="two failures",
                    deadline_seconds=SECONDS,
                )
                assert not demand.report().announced
            await renewed(demand)
            assert demand_in(await lease(plane)).phase == "Rollout"
    gone, back = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "does not answer" in gone
    assert "announced again" in back


@pytest.mark.usefixtures("trainer", "uid")
async def test_credentials_that_ran_out_are_read_anew(
    plane: ControlPlane, become_trainer: BecomesTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Pool(CONFIG) as pool:
        endpoint = pool.endpoint
        writer = LeaseWriter(endpoint.source, lambda: endpoint)  # type: ignore[arg-type]
        kubeconfig = plane.directory / "changing.kubeconfig"
        monkeypatch.setattr(endpoint.source, "_environ", {"KUBECONFIG": str(kubeconfig)})
        plane.kubeconfig_for("changing", "a token that ran out")
        with pytest.raises(NotWrittenError, match="does not accept the credentials"):
            await writer.write(Demand(job="grpo-7", phase="Starting"))
        plane.kubeconfig_for("changing", plane.admin_token)
        await writer.write(Demand(job="grpo-7", phase="Starting"))
        await writer.close()
    assert demand_in(await lease(plane)).phase == "Starting"

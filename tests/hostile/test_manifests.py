"""Manifests drawn from the CRD's schema, on a real API server with the operator under test.

Accepted means served: the pool reaches a condition about this very spec within seconds, and no pass over it raises.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import pytest
from hypothesis import strategies as st
from support.drawing import draw_all
from support.hostile_operator import operator_of
from support.hostile_pool import FailedPasses
from support.odd_manifests import Spec, mutated, pool_annotations, pool_names, specs
from support.patience import PATIENCE
from support.tried import EXAMPLES, TRIED

from cluster.control_plane import ControlPlane
from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes.manager import Manager

pytestmark = pytest.mark.real

NAMESPACE: Final = "hostile"
CONDITION_SECONDS: Final = 10.0
AT_A_TIME: Final = 8
ENOUGH: Final = 3
"""Troubles after which no more are looked for: each takes its time."""
MOST_PODS: Final = 4
"""A manifest may ask for ten thousand replicas; those beyond are refused by a quota."""

drawn = st.tuples(st.one_of(specs(), specs(), mutated(specs())), pool_names, pool_annotations)


@dataclass
class Judge:
    """Makes pools, and says what became of them."""

    kube: Kube
    operator: Manager
    failed: FailedPasses
    troubles: list[str] = field(default_factory=list)
    accepted: int = 0
    slowest: float = 0.0
    """Seconds until a condition."""

    async def judge(self, name: str, spec: Spec, annotations: dict[str, str], then: Spec | None) -> None:
        """One pool from its making to its end; `then` is what its spec is changed to."""
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": annotations}
        manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}
        try:
            made = await self.kube.create(resources.POOLS, manifest)
        except KubeError as error:
            if error.status not in (400, 409, 413, 422):
                self.troubles.append(f"the API server answered {error.status} {error}: {brief(manifest)}")
            return
        self.accepted += 1
        await self._wait(made, manifest)
        if then is not None:
            with suppress(KubeError):
                await self._wait(await self.kube.merge(resources.POOLS, NAMESPACE, name, {"spec": then}), manifest)
        await self.kube.delete(resources.POOLS, NAMESPACE, name)

    async def _wait(self, seen: Object, manifest: Object) -> None:
        """Until a condition is about the spec of this generation."""
        generation, name = seen["metadata"]["generation"], seen["metadata"]["name"]
        began = monotonic()
        while monotonic() - began < CONDITION_SECONDS * PATIENCE:
            await asyncio.sleep(0.05)
            status = (self.operator.store.pool((NAMESPACE, name)) or {}).get("status") or {}
            if status.get("conditions") and status.get("observedGeneration") == generation:
                self.slowest = max(self.slowest, monotonic() - began)
                return
        waited = f"no condition of generation {generation} within {CONDITION_SECONDS * PATIENCE:g} s"
        self.troubles.append(f"{waited}: {brief(seen['spec'])} of {name!r}, which says {status}")


def brief(manifest: Object) -> str:
    """The manifest for a message; long texts are cut."""
    return re.sub(r"(.)\1{60,}", r"\1…\1", json.dumps(manifest, ensure_ascii=False))


async def judge_all(judge: Judge, pools: Sequence[tuple[str, Spec, dict[str, str]]]) -> None:
    room = asyncio.Semaphore(AT_A_TIME)

    async def one(number: int) -> None:
        name, spec, annotations = pools[number]
        # Every second pool is changed to what its neighbour was to be.
        then = pools[number - 1][1] if number % 2 else None
        async with room:
            if len(judge.troubles) >= ENOUGH:
                return
            await judge.judge(name, spec, annotations, then)

    async with asyncio.TaskGroup() as group:
        for number in range(len(pools)):
            group.create_task(one(number))


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl("--namespace", NAMESPACE, "create", "quota", "few-pods", f"--hard=pods={MOST_PODS}")
    return NAMESPACE


async def test_every_manifest_that_is_accepted_reaches_a_condition_and_no_pass_raises(
    control_plane: ControlPlane, namespace: str
) -> None:
    found = draw_all(drawn, max(1, EXAMPLES // 2))
    pools = [(name or f"p{number}", spec, annotations) for number, (spec, name, annotations) in enumerate(found)]
    async with operator_of(control_plane, namespace) as running:
        judge = Judge(running.kube, running.operator, running.failed)
        await judge_all(judge, pools)

    TRIED["manifests"] += len(pools)
    TRIED["of them accepted"] += judge.accepted
    TRIED["ms until the slowest condition"] = round(1000 * judge.slowest)
    assert judge.accepted > len(pools) // 10
    assert not judge.failed.found, "\n".join(dict.fromkeys(judge.failed.found))
    assert not judge.troubles, "\n".join(judge.troubles)

"""The operator in the tests' own process against a real API server, and what its log says of passes that failed."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp
from support.hostile_pool import FailedPasses

from cluster.control_plane import ControlPlane
from rewardpool_kube.client import Kube
from rewardpool_kube.configuration import load_configuration
from rewardpool_operator.kubernetes.manager import Manager


@dataclass(frozen=True)
class Running:
    """It serves one namespace."""

    kube: Kube
    operator: Manager
    failed: FailedPasses


@asynccontextmanager
async def operator_of(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Running]:
    """The operator, with an administrator's rights, until the end of the block."""
    failed, logger = FailedPasses(), logging.getLogger("rewardpool_operator")
    configuration = await load_configuration({"KUBECONFIG": str(control_plane.kubeconfig)})
    async with Kube(configuration) as kube, aiohttp.ClientSession() as session:
        operator = Manager(kube, session, image="rewardpool:test", namespaces=[namespace])
        running = asyncio.create_task(operator.run())
        logger.addHandler(failed)
        logger.propagate = False
        try:
            yield Running(kube, operator, failed)
        finally:
            logger.removeHandler(failed)
            logger.propagate = True
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

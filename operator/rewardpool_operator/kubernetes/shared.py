"""State that the reconcilers of all pools share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from rewardpool_kube.client import Kube
from rewardpool_operator.kubernetes.budgets import Budgets
from rewardpool_operator.kubernetes.cache.store import Store
from rewardpool_operator.kubernetes.mounted_files import MountedFiles
from rewardpool_operator.kubernetes.settings.agent_sandbox import NO_AGENT_SANDBOX, AgentSandbox
from rewardpool_operator.kubernetes.settings.operator_identity import OperatorIdentity
from rewardpool_operator.kubernetes.settings.pool_defaults import NO_DEFAULTS, PoolDefaults
from rewardpool_operator.kubernetes.upgrade_slots import UpgradeSlots


@dataclass(frozen=True, kw_only=True)
class SharedParts:
    """Objects that the reconcilers of all pools share."""

    kube: Kube
    session: aiohttp.ClientSession
    store: Store
    files: MountedFiles
    image: str
    identity: OperatorIdentity | None
    """None outside of the cluster."""
    poll_limit: asyncio.Semaphore
    budgets: Budgets
    upgrade_slots: UpgradeSlots
    defaults: PoolDefaults = NO_DEFAULTS
    sandbox: AgentSandbox = NO_AGENT_SANDBOX
    unseen: Callable[[str], str | None] = lambda _: None
    """Returns what may not be read any more in a namespace, in words; None when all may be read."""

"""Check that pools may have their workers as sandboxes of agent-sandbox: the operator is to see their SandboxClaims."""

from collections.abc import Mapping
from typing import Final

from rewardpool_api import RewardPool
from rewardpool_kube.resources import SANDBOX_CLAIMS
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.cache.reflector import Reflector
from rewardpool_operator.kubernetes.workload import sandboxes

KIND: Final = f"{SANDBOX_CLAIMS.plural}.{SANDBOX_CLAIMS.group}/{SANDBOX_CLAIMS.version}"


class AgentSandbox:
    """The watches of SandboxClaims, by namespace; "" stands for all. None where the operator may not have any."""

    def __init__(self, reflectors: Mapping[str, Reflector]) -> None:
        self._reflectors = reflectors

    def is_being_listed(self, namespace: str) -> bool:
        """Return whether the claims there are not all known yet, which the next moments change."""
        reflector = self._get(namespace)
        return reflector is not None and reflector.problem is None and not reflector.synced.is_set()

    def problem(self, namespace: str) -> str | None:
        """Return why no claims can be made there, and what to do; None where they can."""
        reflector = self._get(namespace)
        advice = "or leave spec.sandbox.runtime out"
        if reflector is None:
            return f"this operator makes no SandboxClaims: set agentSandbox.enabled of its chart to true, {advice}"
        if reflector.problem is None:
            return None
        return f"{KIND} cannot be watched here ({reflector.problem.strip()}): install agent-sandbox, {advice}"

    def _get(self, namespace: str) -> Reflector | None:
        return self._reflectors.get(namespace) or self._reflectors.get("")


NO_AGENT_SANDBOX: Final = AgentSandbox({})


def is_needed(pool: RewardPool, objects: Objects) -> bool:
    """Return whether workers of the pool are sandboxes, or are to be."""
    wanted = pool.spec.sandbox is not None and pool.spec.sandbox.runtime is not None
    return wanted or any(sandboxes.are_pods_of(one["spec"]["template"]) for one in objects.worker_deployments())

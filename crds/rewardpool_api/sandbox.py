"""Limits of the calls of a pool's function."""

import math
import re
from typing import Annotated, Final

from pydantic import Field

from rewardpool_api.names import OnMissing, SandboxNetwork, SandboxRuntime
from rewardpool_api.rules import ApiModel

CallSeconds = Annotated[float, Field(ge=0.001, le=86_400)]
CallMemory = Annotated[str, Field(max_length=16, pattern=r"^[1-9][0-9]{0,9}[MG]i$")]

_UNITS: Final = {
    "": 1.0,
    "m": 0.001,
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)},
    **{letter: 1000.0**power for power, letter in enumerate("kMGTPE", 1)},
}
"""Of a quantity, in bytes."""


class SandboxSpec(ApiModel):
    """Limits of each call of a function, and the reach of the function's processes."""

    runtime: SandboxRuntime | None = None
    """AgentSandbox: each replica is a sandbox of agent-sandbox, held by one SandboxClaim. On Kubernetes, where agent-sandbox is installed and the chart's agentSandbox.enabled is true. Default: a pod of a Deployment."""
    cpu_seconds: CallSeconds = 30.0
    """Maximum processor time of one call in seconds, including the processes that it starts. A call that exceeds it fails as the policy's fault."""
    idle_seconds: CallSeconds = 30.0
    """Maximum seconds that one call may wait for something other than a processor. A call that exceeds it fails as the function's fault."""
    memory: CallMemory | None = None
    """Memory of one call beyond what the imported module has, such as 512Mi. Default: 4Gi."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Maximum number of concurrent calls in one replica. Default: the number of its processors, or 32 for an async function."""
    calls_per_process: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Calls after which a process is replaced; 0: never. Default: 1, and 0 where the module starts threads or imports the sandbox."""
    network: SandboxNetwork = "Pod"
    """Pod: the function has the network of its pod or machine. None: neither the function nor a program that it starts can create a socket."""
    on_missing: OnMissing = "Refuse"
    """What a replica does if the function can reach the pool's key, another call, or a network that it must not reach. Refuse: the replica does not serve. Weaken: it serves, and the condition Sandboxed says what is missing."""

    @property
    def memory_mib(self) -> int | None:
        """`memory` in MiB."""
        return None if self.memory is None else int(mib(self.memory))


def mib(quantity: int | str) -> float:
    """Return a quantity of memory, as Kubernetes writes it, in MiB; what is none is without end."""
    found = re.fullmatch(r"\+?([0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)", str(quantity))
    if found is None or found[2] not in _UNITS:
        return math.inf
    return float(found[1]) * _UNITS[found[2]] / 2**20

"""Other projects' autoscalers, as policies of the simulator.

One module per project, written from the behaviour of its published source at the version it names, with its defaults,
and checked against its own published cases and against measurements of the real one (tests/bench).
What a project ships is simulated, its defects too.

All are given the same target per replica and the same bounds (`settings.py`); `windows.py` is what they remember.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from autoscaler.peers.aibrix import AibrixApa, AibrixKpa
from autoscaler.peers.hpa import Hpa
from autoscaler.peers.keda import Keda
from autoscaler.peers.knative import KnativeKpa
from autoscaler.peers.kubeai import KubeAi
from autoscaler.peers.settings import PeerSettings
from rewardpool_simulator.policy import Policy

__all__ = ["PEERS", "PeerSettings"]

PEERS: Final[Mapping[str, Callable[[PeerSettings], Policy]]] = MappingProxyType(
    {
        "hpa": Hpa,
        "keda": Keda,
        "knative": KnativeKpa,
        "kubeai": KubeAi,
        "aibrix-apa": AibrixApa,
        "aibrix-kpa": AibrixKpa,
    }
)
"""By the name that commands take; each call makes an autoscaler without a past."""

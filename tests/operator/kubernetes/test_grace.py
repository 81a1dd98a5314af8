"""The times of leaving agree: what the operator waits, what the engine is told, and when Kubernetes kills.

A worker that is told to stop has left every router or leaves them during preStop; the engine then has `drainSeconds`
for what is in flight, and some seconds to end. Only after all of it may the kubelet kill.
"""

from itertools import pairwise
from typing import get_args

import pytest
from support.kube_builders import FUNCTION, a_pool

from rewardpool_api.engines import EngineName
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.render.common import PRE_STOP_SECONDS
from rewardpool_worker.engines import engine_for

ENGINES = {
    "vllm": {},
    "sglang": {"engine": {"name": "sglang"}},
    "transformers": {"engine": {"name": "transformers"}},
    "python": FUNCTION,
}
DRAIN_FLAGS = {
    "vllm": "--shutdown-timeout",
    "sglang": None,
    "transformers": "--drain-seconds",
    "python": "--drain-seconds",
}
"""SGLang has none: it finishes what it has, for as long as it is let live."""


def pod_of(engine: str, drain_seconds: int):
    spec = {"worker": {"gpus": 0, "drainSeconds": drain_seconds}, **ENGINES[engine]}
    return render.worker_template(a_pool(**spec), image="own")["spec"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("drain_seconds", [0, 60, 3600])
def test_kubernetes_kills_a_worker_only_after_its_drain(engine: str, drain_seconds: int) -> None:
    pod = pod_of(engine, drain_seconds)
    (container,) = pod["containers"]
    pre_stop = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pre_stop == PRE_STOP_SECONDS
    assert pod["terminationGracePeriodSeconds"] == pre_stop + drain_seconds + engine_for(engine).end_seconds


def test_sglang_has_the_time_it_takes_to_end() -> None:
    """Measured: about 20 s after the last answer of a flood."""
    assert pod_of("sglang", 0)["terminationGracePeriodSeconds"] >= PRE_STOP_SECONDS + 2 * 20


@pytest.mark.parametrize("engine", [engine for engine, flag in DRAIN_FLAGS.items() if flag])
@pytest.mark.parametrize("drain_seconds", [0, 60, 3600])
def test_the_engine_is_told_how_long_it_may_drain(engine: str, drain_seconds: int) -> None:
    command = pod_of(engine, drain_seconds)["containers"][0]["command"]
    assert (DRAIN_FLAGS[engine], str(drain_seconds)) in set(pairwise(command))


def test_every_engine_is_held_to_this() -> None:
    assert set(ENGINES) == set(DRAIN_FLAGS) == set(get_args(EngineName))

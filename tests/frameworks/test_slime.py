"""The reward calls of slime and of its fork miles, answered by a pool of real processes: by `--custom-rm-path`, and
through the gateway.

Neither is on a package index. With $SLIME_SOURCE and $MILES_SOURCE, the paths of their sources, their own `rm_hub`
calls with their own samples; without, a stand-in calls the function as that does, and the gateway is left to the tests
of OpenRLHF's client.
"""

import asyncio
import importlib
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.local_machine import POOL, LocalMachine, finish, local_machine

from rewardpool import slime as adapter
from rewardpool_api import names

pytestmark = pytest.mark.real

SOURCES = {"slime itself": ("slime", "SLIME_SOURCE"), "miles itself": ("miles", "MILES_SOURCE")}
"""By the fixture's parameter: the package, and the variable that names the path of its source."""
SAMPLES = 60
EXPECTED = [float(index % 10) for index in range(SAMPLES)]


@dataclass
class Slime:
    """What makes samples, and what asks for the reward of one and of a list of them."""

    make_sample: Callable[..., Any]
    of_one: Callable[[Any, Any], Awaitable[Any]]
    of_many: Callable[[Any, list[Any]], Awaitable[Any]]


class StandInStatus(Enum):
    COMPLETED = "completed"


@dataclass
class StandInSample:
    """Stands in for slime.utils.types.Sample."""

    prompt: str
    response: str
    index: int
    group_index: int
    metadata: dict[str, Any]
    response_length: int = 1
    label: str | None = None
    status: StandInStatus = StandInStatus.COMPLETED
    custom_rm_path: str | None = field(default=None)


@pytest.fixture(params=[*SOURCES, "a stand-in"])
def slime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Slime:
    if request.param == "a stand-in":
        return Slime(StandInSample, adapter.custom_rm, adapter.custom_rm)
    package, variable = SOURCES[request.param]
    source = os.environ.get(variable)
    if source is None:
        pytest.skip(f"{package} is on no package index; set {variable} to the path of its source")
    monkeypatch.syspath_prepend(source)
    rm_hub = importlib.import_module(f"{package}.rollout.rm_hub")
    types = importlib.import_module(f"{package}.utils.types")
    return Slime(types.Sample, rm_hub.async_rm, rm_hub.batched_async_rm)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalMachine]:
    """A machine of the test's own, as its processes are killed."""
    with local_machine(tmp_path) as machine:
        monkeypatch.setenv(names.ENV_STATE_DIR, machine.environ[names.ENV_STATE_DIR])
        monkeypatch.setenv("KUBECONFIG", str(machine.home / "none"))
        yield machine


def arguments(**further: Any) -> SimpleNamespace:
    """slime's arguments, of which the reward calls look at these."""
    known = {"custom_rm_path": "rewardpool.slime.custom_rm", "reward": POOL, "reward_key": None, "rm_type": None}
    return SimpleNamespace(**known, hf_checkpoint=None, **further)


def samples(slime: Slime) -> list[Any]:
    """Whose rewards are 0 to 9, over and over; the pool's function takes a second for each."""
    return [
        slime.make_sample(
            prompt="p", response="7" * (index % 10), index=index, group_index=index // 10, metadata={"seconds": 1.0}
        )
        for index in range(SAMPLES)
    ]


async def while_worker_and_router_die(machine: LocalMachine, asked: Awaitable[Any]) -> Any:
    """What was asked for, though both are killed with -9 while it is in flight."""
    asking = asyncio.ensure_future(asked)
    for victim in (machine.worker(), machine.router()):
        await asyncio.sleep(0.4)
        victim.kill()
    assert not asking.done()
    return await asking


async def test_single_samples_and_a_group_are_scored_though_worker_and_router_die(
    machine: LocalMachine, slime: Slime
) -> None:
    await machine.up(replicas=2)
    asked = asyncio.gather(*(slime.of_one(arguments(), sample) for sample in samples(slime)))
    singly = await while_worker_and_router_die(machine, asked)
    await machine.serves(2)
    together = await while_worker_and_router_die(machine, slime.of_many(arguments(), samples(slime)))
    adapter.close()
    assert (await machine.run("down"))[0] == 0
    assert (singly, together) == (EXPECTED, EXPECTED)


@pytest.mark.parametrize("slime", SOURCES, indirect=True)  # a stand-in has no client of its own
async def test_slimes_own_remote_client_is_answered_by_the_gateway_though_worker_and_router_die(
    machine: LocalMachine, slime: Slime
) -> None:
    (machine.home / "slow.py").write_text(
        "import asyncio\n\n"
        "async def slow(data_source, solution_str, ground_truth, extra_info):\n"
        "    await asyncio.sleep(1)\n"
        "    return len(solution_str)\n"
    )
    await machine.up(model={"source": "python://slow:slow", "type": "Function"}, replicas=2)
    process = machine.start("gateway", POOL, "--listen", "127.0.0.1:0")
    assert process.stdout is not None
    found = re.search(r"answers at (http://\S+)/get_reward", await asyncio.to_thread(process.stdout.readline))
    assert found is not None
    args = arguments(rm_url=found[1] + "/slime")
    args.custom_rm_path, args.rm_type = None, "remote_rm"
    rewards = await while_worker_and_router_die(machine, slime.of_many(args, samples(slime)))
    if shared := getattr(sys.modules[slime.of_many.__module__], "_get_shared_session", None):  # miles opens one a call
        await shared().close()
    process.terminate()
    await finish(process)
    assert (await machine.run("down"))[0] == 0
    assert rewards == EXPECTED

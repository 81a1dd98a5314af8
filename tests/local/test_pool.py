"""A pool on one machine: real processes, the real router, a reward function as the engine."""

import asyncio
import json
import os
import signal
from typing import Any

import aiohttp
import pytest
from support.env_vars import env_vars
from support.fleet import eventually
from support.local_machine import FUNCTIONS, POOL, LocalMachine, finish

from rewardpool import Endpoint, FunctionSample, RewardConfig, Sample
from rewardpool._client.pool import injected_pool
from rewardpool._discovery.find import find_pool
from rewardpool.errors import PoolNotFoundError
from rewardpool_api import names
from rewardpool_local.folder import PoolFolder
from rewardpool_local.process import ENV_PROCESS

pytestmark = pytest.mark.real


def request(folder: PoolFolder, *, seconds: float) -> dict[str, Any]:
    """The arguments of a POST for a score that takes so many seconds."""
    sample = {"data_source": "", "solution_str": "four", "ground_truth": "", "extra_info": {"seconds": seconds}}
    key = folder.key_file.read_text()
    return {
        "json": {"model": "length", "input": json.dumps(sample)},
        "headers": {"Authorization": f"Bearer {key}"},
        "timeout": aiohttp.ClientTimeout(total=40),
    }


async def score(session: aiohttp.ClientSession, machine: LocalMachine, *, seconds: float = 0.02) -> float:
    """One score from the router, by a caller who never tries twice."""
    url = f"{machine.pool().status.url}/v1/embeddings"
    async with session.post(url, **request(machine.folder, seconds=seconds)) as answer:
        return float((await answer.json())["data"][0]["embedding"][0])


async def test_up_gives_a_pool_that_scores_and_down_leaves_nothing(machine: LocalMachine) -> None:
    assert "rl/length is ready: 2 of 2 replicas serve at " in await machine.up(replicas=2)
    assert await machine.run("score", "hello world") == (0, "11.0\n")
    code, shown = await machine.run("status", POOL, "--json")
    status = json.loads(shown)["status"]
    assert (code, status["readyReplicas"], len(status["workers"])) == (0, 2, 2)
    assert (await machine.run("down"))[0] == 0
    assert machine.processes() == []


async def test_keys_are_in_files_of_the_owner_and_in_no_command_line(lasting: LocalMachine) -> None:
    await lasting.up(replicas=2)
    for file in (lasting.folder.key_file, lasting.folder.admin_key_file):
        assert file.stat().st_mode & 0o777 == 0o600
        assert not any(file.read_text() in " ".join(process.cmdline()) for process in lasting.processes())
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{lasting.pool().status.url}/v1/embeddings", json={"model": "m", "input": "x"}) as answer,
    ):
        assert answer.status == 401


async def test_a_killed_worker_is_replaced_and_no_request_is_lost(
    lasting: LocalMachine, session: aiohttp.ClientSession
) -> None:
    await lasting.up(replicas=2)
    victim = lasting.pool().status.workers[0]
    assert victim.pid is not None
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(score(session, lasting, seconds=0.2)) for _ in range(30)]
        await asyncio.sleep(0.1)
        os.kill(victim.pid, signal.SIGKILL)
    assert [call.result() for call in calls] == [4.0] * 30

    async def replaced() -> bool:
        worker = lasting.pool().status.workers[0]
        return worker.restarts == 1 and worker.phase == "Ready" and worker.pid != victim.pid

    await eventually(replaced, what="the worker has a new process")
    await lasting.serves(2)


async def test_a_pool_that_is_opened_after_its_only_worker_was_killed_scores_when_that_is_back(
    machine: LocalMachine,
) -> None:
    # Long enough for the pool to be found meanwhile.
    await machine.up(engine={"env": env_vars({"START_SECONDS": "3"})})
    pid = machine.pool().status.workers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    async def missed() -> bool:
        serving = machine.pool().status.condition("Serving")
        return serving is not None and serving.status == "False"

    async def find(config: RewardConfig, **how: Any) -> Endpoint:
        return await find_pool(config, environ=machine.environ | {"KUBECONFIG": "/nowhere"}, **how)

    await eventually(missed, what="the worker is missed")
    async with injected_pool(RewardConfig(pool=POOL), find=find) as pool:
        assert pool.endpoint.not_ready
        sample = FunctionSample(data_source="", solution_str="four", ground_truth="")
        assert await pool.score(Sample(function=sample)) == 4.0


async def test_a_killed_router_comes_back_at_its_address_with_its_workers(
    lasting: LocalMachine, session: aiohttp.ClientSession
) -> None:
    await lasting.up(replicas=2)
    url = lasting.pool().status.url
    lasting.router().kill()

    async def noticed() -> bool:
        return lasting.pool().status.ready_replicas == 0

    await eventually(noticed, what="the router is missed")
    await lasting.serves(2)
    assert lasting.pool().status.url == url
    assert await score(session, lasting) == 4.0


async def test_growing_and_shrinking_under_load_loses_no_request(
    lasting: LocalMachine, session: aiohttp.ClientSession
) -> None:
    await lasting.up(replicas=1)
    done = asyncio.Event()

    async def keep_asking() -> list[float]:
        scores = []
        while not done.is_set():
            scores.append(await score(session, lasting, seconds=0.2))
        return scores

    async with asyncio.TaskGroup() as group:
        callers = [group.create_task(keep_asking()) for _ in range(8)]
        for replicas in ("3", "1"):
            code, said = await lasting.run("scale", "rl/length", replicas)
            assert code == 0, said
            await lasting.serves(int(replicas))
        done.set()
    scores = [value for caller in callers for value in caller.result()]
    assert len(scores) > 50
    assert set(scores) == {4.0}


async def test_sigterm_finishes_what_is_in_flight(machine: LocalMachine, session: aiohttp.ClientSession) -> None:
    command = machine.start("up", "-f", machine.manifest(replicas=2))
    await machine.serves(2)
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(score(session, machine, seconds=2)) for _ in range(6)]
        await asyncio.sleep(0.5)
        command.send_signal(signal.SIGTERM)
    assert [call.result() for call in calls] == [4.0] * 6
    assert (await finish(command))[0] == 0
    assert machine.processes() == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("from os.path import *  # which may bring any name", "FunctionNotFound: "),
        ("def (", "FunctionNotLoadable: "),
    ],
)
async def test_up_gives_up_at_once_when_no_attempt_can_help(machine: LocalMachine, text: str, reason: str) -> None:
    (machine.home / "vague.py").write_text(text)
    model = {"source": "python://vague:lenght", "type": "Function"}
    code, said = await machine.run("up", "-f", machine.manifest(model=model))
    assert code == 1, said
    assert f"no worker can start ({reason}" in said
    assert machine.processes() == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_before_a_pool_was_ready_is_no_success(machine: LocalMachine, number: int, code: int) -> None:
    command = machine.start("up", "-f", machine.manifest(engine={"env": env_vars({"EXIT_AT_ONCE": "1"})}))

    async def has_tried() -> bool:
        pool = machine.folder.read_pool()
        degraded = pool.status.condition("Degraded") if pool is not None else None
        return degraded is not None and degraded.status == "True"

    await eventually(has_tried, what="a worker was tried")
    command.send_signal(number)
    ended, said = await finish(command)
    assert ended == code, said
    assert machine.processes() == []


async def test_a_second_signal_ends_everything_at_once(machine: LocalMachine, session: aiohttp.ClientSession) -> None:
    worker = {"gpus": 0, "drainSeconds": 60}
    command = machine.start("up", "-f", machine.manifest(replicas=1, worker=worker))
    await machine.serves(1)
    call = asyncio.create_task(score(session, machine, seconds=30))
    await asyncio.sleep(0.5)
    command.send_signal(signal.SIGINT)
    await asyncio.sleep(0.5)
    command.send_signal(signal.SIGINT)
    code, said = await asyncio.wait_for(finish(command), 20)  # less than the request and the drain take
    assert (code, "requests in flight are lost" in said) == (0, True)
    with pytest.raises(aiohttp.ClientError):
        await call


async def test_up_ends_what_a_killed_supervisor_left(machine: LocalMachine) -> None:
    await machine.up(engine={"env": env_vars({"LEAVE_A_CHILD": "1"})})
    record = machine.folder.read_supervisor()
    assert record is not None
    # As if a worker had started it: out of its group and session, nothing but its mark leads to it.
    env = {ENV_PROCESS: f"/{record.run_id}/worker-1/1/", names.ENV_KEY_FILE: str(machine.folder.key_file)}
    child = await asyncio.create_subprocess_exec("sleep", "600", env=env, start_new_session=True)
    machine.supervisor().kill()

    async def only_the_child() -> bool:
        return [process.name() for process in machine.processes()] == ["sleep"]

    await eventually(only_the_child, what="router and worker ended with their supervisor")
    code, shown = await machine.run("status", POOL)
    assert (code, "SupervisorGone" in shown) == (0, True)
    said = await machine.up()
    assert f"ended 1 processes that a killed supervisor had left: {child.pid}" in said
    assert await child.wait() == -signal.SIGKILL


async def test_the_same_manifest_again_changes_nothing(lasting: LocalMachine) -> None:
    await lasting.up(replicas=1)
    supervisor = lasting.supervisor().pid
    code, said = await lasting.run("up", "-f", lasting.manifest(replicas=1))
    assert (code, "nothing to do" in said, lasting.supervisor().pid) == (0, True, supervisor)


async def test_a_changed_manifest_is_rolled_out_without_losing_a_request(
    lasting: LocalMachine, session: aiohttp.ClientSession
) -> None:
    await lasting.up(replicas=1)
    before = lasting.pool()
    rolling = lasting.start("up", "-f", lasting.manifest(engine={"env": env_vars({"NEW": "1"})}, replicas=1))
    scores = []
    while rolling.poll() is None:
        scores.append(await score(session, lasting, seconds=0.05))
    assert rolling.returncode == 0
    await lasting.serves(1)
    after = lasting.pool()
    assert set(scores) == {4.0}
    assert after.status.current_revision != before.status.current_revision
    assert after.metadata.generation == before.metadata.generation + 1
    assert after.status.url == before.status.url


async def test_an_edited_function_is_rolled_out_by_up_and_by_nothing_else(
    machine: LocalMachine, session: aiohttp.ClientSession
) -> None:
    await machine.up(replicas=1)
    before = machine.pool()
    (machine.home / "functions.py").write_text(FUNCTIONS.replace("len(solution_str)", "100"))
    machine.worker().kill()

    async def restarted() -> bool:
        return machine.pool().status.workers[0].restarts == 1

    await eventually(restarted, what="the worker has a new process")
    await machine.serves(1)
    assert await score(session, machine) == 4.0
    rolling = machine.start("up", "-f", machine.manifest(replicas=1))
    scores = []
    while rolling.poll() is None:
        scores.append(await score(session, machine, seconds=0.05))
    assert (rolling.returncode, scores[0], set(scores) <= {4.0, 100.0}) == (0, 4.0, True)
    assert {await score(session, machine) for _ in range(20)} == {100.0}
    after = machine.pool()
    assert after.status.current_revision != before.status.current_revision
    assert after.metadata.generation == before.metadata.generation + 1
    # One for what it serves, and one to go back to.
    assert len(machine.folder.code.others(set())) == 2
    code, said = await machine.run("rollback", POOL)
    assert code == 0, said
    assert {await score(session, machine) for _ in range(20)} == {4.0}
    assert machine.pool().status.current_revision == before.status.current_revision


async def test_the_first_request_wakes_a_pool_at_zero_and_silence_puts_it_back(
    machine: LocalMachine, session: aiohttp.ClientSession
) -> None:
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}}
    bounds = {"minReplicas": 0, "maxReplicas": 2, "cooldownSeconds": 3, "scaleDown": {"stabilizationWindowSeconds": 1}}
    await machine.up(autoscaling={**bounds, "policy": policy})
    assert machine.pool().status.workers == []
    scores = await asyncio.gather(*(score(session, machine) for _ in range(8)))
    assert scores == [4.0] * 8
    await machine.serves(0)
    learned = machine.pool().status.scaling
    assert learned is not None
    assert max(start.seconds for start in learned.starts) > 0


async def test_a_pool_that_scales_itself_takes_no_number(lasting: LocalMachine) -> None:
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}}
    await lasting.up(autoscaling={"minReplicas": 1, "maxReplicas": 2, "policy": policy})
    code, said = await lasting.run("scale", POOL, "2")
    assert (code, "spec.replicas must not be set beside spec.autoscaling" in said) == (2, True)


async def test_a_revision_that_does_not_start_takes_nothing_from_the_one_that_serves(
    machine: LocalMachine, session: aiohttp.ClientSession
) -> None:
    await machine.up(replicas=1)
    broken = machine.manifest(engine={"env": env_vars({"EXIT_AT_ONCE": "1"})}, rollout={"progressDeadlineSeconds": 4})
    code, said = await machine.run("up", "-f", broken)
    assert (code, "the weights are gone" in said) == (1, True)
    assert await score(session, machine) == 4.0
    assert (await machine.run("up", "-f", machine.manifest(replicas=1)))[0] == 0
    await machine.serves(1)


async def test_a_pool_may_be_open_to_all_from_its_start_to_its_end(machine: LocalMachine) -> None:
    await machine.up(router={"auth": {"mode": "Disabled"}})
    assert await machine.run("score", "four") == (0, "4.0\n")
    code, said = await machine.run("up", "-f", machine.manifest())
    assert (code, "spec.router.auth.mode cannot change while the pool runs" in said) == (2, True)


async def test_a_parked_replica_serves_the_first_request_and_is_parked_again(machine: LocalMachine) -> None:
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}}
    bounds = {"minReplicas": 0, "maxReplicas": 1, "cooldownSeconds": 1, "scaleDown": {"stabilizationWindowSeconds": 0}}
    await machine.up(autoscaling={**bounds, "policy": policy, "parked": 1})

    async def parked() -> bool:
        return machine.pool().status.parked_replicas == 1

    await eventually(parked, what="a replica is parked")
    (before,) = machine.pool().status.workers
    assert (before.phase, machine.pool().status.ready_replicas) == ("Parked", 0)
    assert await machine.run("score", "hello world") == (0, "11.0\n")
    await eventually(parked, what="it is parked again")
    (after,) = machine.pool().status.workers
    assert (after.pid, after.restarts) == (before.pid, 0)


@pytest.mark.long  # both routers are behind the tests of the client, and an operator changes one for the other
async def test_an_smg_serves_as_well_and_is_changed_for_the_other_one(machine: LocalMachine) -> None:
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}}
    bounds = {"minReplicas": 0, "maxReplicas": 2, "cooldownSeconds": 60}
    await machine.up(router={"flavor": "smg"}, autoscaling={**bounds, "policy": policy})
    assert machine.pool().status.workers == []
    assert "smg" in machine.router().name()
    # It refuses while there is no worker; the trainer's coming again wakes the pool.
    code, said = await machine.run("score", "hello world")
    assert (code, said.splitlines()[-1]) == (0, "11.0")

    async def has_first_score() -> bool:
        first = machine.pool().status.first_score
        return first is not None and first.waits_for is None

    await eventually(has_first_score, what="the status tells what the first request waited for")
    first = machine.pool().status.first_score
    assert first is not None
    assert first.parts.load > 0
    assert sum(seconds for _, seconds in first.parts) == pytest.approx(first.seconds, abs=0.01)
    await machine.up(autoscaling={**bounds, "policy": policy})

    async def changed() -> bool:
        return "sglang" in machine.router().name()

    await eventually(changed, what="the other router runs")
    assert await machine.run("score", "hello world") == (0, "11.0\n")


async def test_files_of_the_folder_that_up_is_run_in_are_no_modules_of_supervisor_and_worker(
    machine: LocalMachine,
) -> None:
    for module in ("psutil", "aiohttp"):
        (machine.home / f"{module}.py").write_text("open('ran', 'a').write('once')\n")
    await machine.up()
    assert not (machine.home / "ran").exists()


async def test_keys_are_made_anew_at_each_up(lasting: LocalMachine) -> None:
    files = lasting.folder.key_file, lasting.folder.admin_key_file
    await lasting.up(replicas=1)
    before = {file.read_text() for file in files}
    await lasting.run("down")
    await lasting.up(replicas=1)
    assert len(before | {file.read_text() for file in files}) == 4


async def test_a_pool_that_is_down_is_not_found(lasting: LocalMachine) -> None:
    await lasting.up(replicas=1)
    await lasting.run("down")
    with pytest.raises(PoolNotFoundError, match="not running"):
        await find_pool(RewardConfig(pool=POOL), environ=lasting.environ | {"KUBECONFIG": "/nowhere"})
    assert "Stopped" in (await lasting.run("status", POOL))[1]

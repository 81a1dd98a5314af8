"""Looking at a pool of this machine by the commands that also look at clusters. The engines are reward functions."""

import json

import pytest
from support.local_machine import POOL, LocalMachine, finish

pytestmark = pytest.mark.real


async def test_a_running_pool_can_be_looked_at(lasting: LocalMachine) -> None:
    await lasting.up()
    _, top = await lasting.run("top", POOL, "--json")
    (row,) = json.loads(top)["pools"]
    assert (row["ready"], row["desired"], row["state"]) == (1, 1, "Serving")
    assert row["samples_per_second"] == 0, "nobody asks, which is known"
    _, explained = await lasting.run("explain", POOL)
    assert f"{POOL} is healthy" in explained
    _, logs = await lasting.run("logs", POOL, "--component", "worker", "--tail", "1")
    assert logs.startswith("worker-1 ")


async def test_a_pool_at_zero_says_where_it_is_and_its_port_is_not_changed_in_silence(machine: LocalMachine) -> None:
    policy = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}}
    manifest = machine.manifest(autoscaling={"minReplicas": 0, "maxReplicas": 1, "policy": policy})
    code, said = await machine.run("up", "-f", manifest, "--detach")
    assert code == 0, said
    assert f"{POOL} has no replica at http://127.0.0.1:" in said
    assert f"--pool {POOL}" in said
    code, said = await machine.run("up", "-f", manifest, "--detach", "--port", "1")
    assert code != 0
    assert "--port 1 cannot be had while the pool runs" in said
    await machine.run("down", POOL)


async def test_what_takes_a_cluster_is_refused_here(lasting: LocalMachine) -> None:
    await lasting.up()
    for name, *options in (("rotate-key",), ("logs", "--since", "5m")):
        code, said = await lasting.run(name, POOL, "--local", *options)
        assert code == 2, said
        assert "machine" in said
        assert "Traceback" not in said


@pytest.mark.parametrize("command", ["restart", "rollback", "rotate-key"])
async def test_what_takes_a_cluster_says_of_a_pool_that_is_not_here_that_it_is_not(
    machine: LocalMachine, command: str
) -> None:
    code, said = await machine.run(command, POOL, "--local")
    assert code == 1
    assert POOL in said
    assert "Traceback" not in said


async def test_following_logs_ends_quietly_when_interrupted(lasting: LocalMachine) -> None:
    await lasting.up()
    following = lasting.start("logs", POOL, "--follow")
    assert following.stdout is not None
    assert following.stdout.readline()
    following.send_signal(2)
    code, said = await finish(following)
    assert code == 130
    assert "Traceback" not in said


async def test_a_pool_that_is_down_is_explained(lasting: LocalMachine) -> None:
    await lasting.up()
    await lasting.run("down", POOL)
    _, explained = await lasting.run("explain", POOL)
    assert "The pool does not run" in explained

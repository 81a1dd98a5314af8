"""`rewardpool delete`: what a pool left on this machine."""

from pathlib import Path

import pytest
from support.command_line import CommandLine, rewardpool
from support.local_pool import POOL, on_this_machine, write_local_pool

from rewardpool_cli.errors import REFUSED
from rewardpool_local.folder import PoolFolder

__all__ = ["rewardpool"]

MANIFEST = """
apiVersion: rewardpool.dev/v1alpha1
kind: RewardPool
metadata: {name: skywork, namespace: rl}
spec: {model: {source: "hf://org/model"}}
"""


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PoolFolder:
    """The folder of a pool that does not run."""
    on_this_machine(monkeypatch, tmp_path)
    return PoolFolder(write_local_pool(tmp_path))


@pytest.mark.parametrize("words", [(POOL,), ("skywork", "-n", "rl"), ("-f", "-")], ids=" ".join)
def test_nothing_of_a_stopped_pool_is_left(
    rewardpool: CommandLine, stopped: PoolFolder, words: tuple[str, ...]
) -> None:
    ended = rewardpool("delete", *words, stdin=MANIFEST.encode())
    assert (ended.code, ended.out) == (0, f"{POOL} is deleted\n")
    assert not stopped.path.parent.exists()


def test_a_pool_that_runs_is_refused(rewardpool: CommandLine, stopped: PoolFolder) -> None:
    with stopped.supervised():
        ended = rewardpool("delete", POOL)
    assert (ended.code, ended.sentence) == (
        REFUSED,
        f"{POOL} still runs: stop it with `rewardpool down {POOL}`, or say --now",
    )
    assert stopped.read_pool() is not None


def test_pools_of_a_cluster_are_left_to_kubectl(rewardpool: CommandLine, stopped: PoolFolder) -> None:
    ended = rewardpool("delete", POOL, program="kubectl-rewardpool")
    assert ended.code == REFUSED
    assert "`kubectl delete rewardpool NAME` deletes one of the cluster" in ended.sentence

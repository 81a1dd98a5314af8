"""Where engines keep what they leave behind when they are killed."""

from pathlib import Path

import pytest
from support.kube_builders import a_pool

from rewardpool_local.folder import PoolFolder
from rewardpool_local.launching import Launcher
from rewardpool_local.machine import installation


@pytest.mark.parametrize(("engine", "variable"), [("vllm", "VLLM_RPC_BASE_PATH"), ("sglang", "TMPDIR")])
def test_an_engines_sockets_are_in_the_pools_folder_unless_its_path_is_too_long(engine: str, variable: str) -> None:
    pool = a_pool(engine={"name": engine})
    for path, place in (("/s/rl/rm", "/s/rl/rm/tmp"), ("/s" * 40, None)):
        launcher = Launcher(python="python", folder=PoolFolder(Path(path)))
        assert launcher.command(pool, gpus={}).env.get(variable) == place


def test_what_a_killed_engine_left_goes_with_the_next_start(tmp_path: Path) -> None:
    folder = PoolFolder(tmp_path / "rm")
    folder.create()
    (folder.temporary / "socket").touch()
    folder.create()
    assert list(folder.temporary.iterdir()) == []


def test_what_to_install_names_the_environment_that_has_it() -> None:
    assert "make setup-sglang" in installation("python", ["sglang", "sglang_router"])
    assert "make setup-server" in installation("python", ["vllm"])

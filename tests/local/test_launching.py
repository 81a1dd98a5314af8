"""Where engines keep what they leave behind when they are killed."""

import json
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
        assert launcher.command(pool, name="worker-1", gpus={}).env.get(variable) == place


ADAPTERS = [
    {"name": "hub", "source": "hf://org/safe", "revision": "a" * 40},
    {"name": "here", "source": "file:///models/here"},
]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
def test_a_model_of_the_hub_and_its_adapters_are_compared_with_their_records_before_an_engine_starts(
    engine: str,
) -> None:
    model = {"source": "hf://org/rm", "revision": "v2"}
    adapters = {"adapters": ADAPTERS} if engine != "transformers" else {}
    pool = a_pool(model={**model, **adapters}, engine={"name": engine})
    launcher = Launcher(python="python", folder=PoolFolder(Path("/s/rl/rm")))
    command = launcher.command(pool, name="worker-3", gpus={})
    *downloads, start = split_at_then(command.argv)
    sources = [("hf://org/rm", "v2", "/s/rl/rm/models/worker-3/current")]
    if adapters:
        sources.append(("hf://org/safe", "a" * 40, "/s/rl/rm/models/worker-3/adapters/hub/current"))
    for download, (source, revision, link) in zip(downloads, sources, strict=True):
        assert (download[0], Path(download[1]).name, download[2]) == (
            "python",
            "rewardpool_worker.zip",
            "download.program",
        )
        assert options(download[3:]) == {
            "--source": source,
            "--revision": revision,
            "--link": link,
            "--records": "/s/.downloads",
        }
    assert sources[0][2] in start
    assert "HF_HUB_OFFLINE" not in command.env, "the download asks the hub"
    told = [adapter["path"] for adapter in json.loads(command.env.get("REWARDPOOL_ADAPTERS", "[]"))]
    assert told == ([] if not adapters else ["/models/here", sources[1][2]])


def split_at_then(argv: tuple[str, ...]) -> list[tuple[str, ...]]:
    if "--then" not in argv:
        return [argv]
    end = argv.index("--then")
    return [argv[:end], *split_at_then(argv[end + 1 :])]


def options(argv: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(argv[::2], argv[1::2], strict=True))


def test_what_a_killed_engine_left_goes_with_the_next_start(tmp_path: Path) -> None:
    folder = PoolFolder(tmp_path / "rm")
    folder.create()
    (folder.temporary / "socket").touch()
    folder.create()
    assert list(folder.temporary.iterdir()) == []


def test_what_to_install_names_the_environment_that_has_it() -> None:
    assert "make setup-sglang" in installation("python", ["sglang", "sglang_router"])
    assert "make setup-server" in installation("python", ["vllm"])

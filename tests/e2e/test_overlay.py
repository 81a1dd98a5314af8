"""What the end-to-end run changes about the quick start, and that it stays a manifest which the API takes."""

from pathlib import Path

import pytest
import yaml

from overlay import Environment, host_folders, quick_start_on_this_machine, training_config, training_job
from rewardpool_api import load_manifest

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
SERVER = Environment(folder=Path("/repo/venvs/server"), base=Path("/opt/python"))


def test_the_overlaid_quick_start_is_a_valid_pool_with_one_replica_on_one_gpu() -> None:
    manifest = quick_start_on_this_machine(
        yaml.safe_load((QUICKSTART / "pool.yaml").read_text()), server=SERVER, image="localhost/base:1"
    )
    spec = load_manifest(yaml.safe_dump(manifest)).spec
    assert (spec.replicas, spec.worker.gpus, spec.engine.image) == (1, 1, "localhost/base:1")


def test_the_overlay_keeps_the_model_and_the_engines_settings() -> None:
    pool = yaml.safe_load((QUICKSTART / "pool.yaml").read_text())
    spec = quick_start_on_this_machine(pool, server=SERVER, image="localhost/base:1")["spec"]
    assert spec["model"] == pool["spec"]["model"]
    assert spec["engine"]["env"][:-1] == pool["spec"]["engine"]["env"]


def test_a_pod_finds_the_environments_programs_first() -> None:
    assert SERVER.search_path.startswith("/repo/venvs/server/bin:")


@pytest.mark.parametrize(
    ("base", "mounted"),
    [("/opt/python", ["/venv", "/opt/python"]), ("/usr/local", ["/venv", "/usr/local"]), ("/usr", ["/venv"])],
)
def test_the_images_own_usr_is_never_covered(base: str, mounted: list[str]) -> None:
    assert [str(path) for path in Environment(folder=Path("/venv"), base=Path(base)).folders] == mounted


def test_a_folder_is_mounted_once_at_its_own_path() -> None:
    volumes, mounts = host_folders([Path("/a"), Path("/b"), Path("/a")])
    assert [mount["mountPath"] for mount in mounts] == ["/a", "/b"]
    assert [volume["name"] for volume in volumes] == [mount["name"] for mount in mounts]


def test_the_training_config_differs_in_paths_length_and_patience_only() -> None:
    config = yaml.safe_load((QUICKSTART / "train.yaml").read_text())
    changed = training_config(config, folder=QUICKSTART, steps=7, wait_seconds=60, output=Path("/out"))
    assert Path(changed["data"]["prompts"]).is_file()
    assert changed["reward"] == {**config["reward"], "wait_seconds": 60}
    assert {name for name in config if changed[name] != config[name]} <= {"policy", "data", "reward", "steps", "output"}


def test_the_training_pod_runs_under_its_own_account_and_writes_to_one_folder_only() -> None:
    account, pod = training_job(
        namespace="default",
        trainer=SERVER,
        image="localhost/base:1",
        config=Path("/out/train.yaml"),
        read=[Path("/repo")],
        write=Path("/out"),
        ranks=2,
    )
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert [mount["mountPath"] for mount in container["volumeMounts"] if not mount["readOnly"]] == ["/out"]

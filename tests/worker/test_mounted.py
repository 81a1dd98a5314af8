"""The mounted files stand alone, and still speak the names and paths that the project's packages define."""

import ast
import sys
from pathlib import Path

import pytest

from rewardpool_api import contract, names, teacher_wire
from rewardpool_worker import score_middleware
from rewardpool_worker.mounted import (
    DOWNLOAD_PACKAGE,
    MOUNTED_FILES,
    download_paths,
    mounted_files,
    write_mounted_files,
)

BESIDE = {
    "head_tokens",
    "lora_adapters",
    "writable_home",
    "score_middleware",
    "sglang_adapters",
    "sleep_middleware",
    "teacher_engines",
    "teacher_wire",
    "transformers_model",
    "worker_metrics",
}
IN_THE_IMAGE = {
    "sglang",
    "sglang_router",
    "huggingface_hub",
    "boto3",
    "botocore",
    "prometheus_client",
    "safetensors",
    "torch",
    "transformers",
    "uvicorn",
    "vllm",
} | BESIDE
"""What the images bring, and the files that are mounted beside."""


def imports(text: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    froms = {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and n.level == 0}
    return {name.split(".")[0] for name in plain | froms}


@pytest.mark.parametrize("name", [*MOUNTED_FILES, *download_paths()])
def test_a_mounted_file_needs_nothing_that_its_image_lacks(name: str) -> None:
    assert imports(mounted_files()[name]) <= sys.stdlib_module_names | IN_THE_IMAGE


def test_all_files_fit_into_one_config_map() -> None:
    assert sum(len(text.encode()) for text in mounted_files().values()) < 500_000


def test_the_middleware_speaks_the_paths_of_the_api() -> None:
    said = (score_middleware.SCORE_PATH, score_middleware.CHAT_PATH, score_middleware.READY_PATH)
    assert said == (contract.SCORE_PATH, contract.CHAT_PATH, names.READY_PATH)
    assert score_middleware.LOGPROBS_PATH == teacher_wire.LOGPROBS_PATH


@pytest.mark.parametrize(
    "variable",
    [
        names.ENV_KEY_FILE,
        names.ENV_MODEL_TYPE,
        names.ENV_SERVED_NAME,
        names.ENV_ENGINE,
        names.ENV_MODEL_PATH,
        names.ENV_HEAD,
        names.ENV_TOP_K,
        names.ENV_MAX_BODY_BYTES,
    ],
)
def test_the_middleware_reads_the_variables_of_the_api(variable: str) -> None:
    assert f'"{variable}"' in mounted_files()["score_middleware.py"]


@pytest.mark.parametrize("variable", [names.ENV_KEY_FILE, names.ENV_ADMIN_KEY_FILE, names.ENV_MEMORY_BYTES])
def test_the_router_launcher_reads_the_variables_of_the_api(variable: str) -> None:
    assert f'"{variable}"' in mounted_files()["router_launcher.py"]


@pytest.mark.parametrize("variable", [names.ENV_MODEL_PATH, names.ENV_HEAD])
def test_a_head_is_looked_up_by_the_variables_of_the_api(variable: str) -> None:
    assert f'"{variable}"' in mounted_files()["head_tokens.py"]


@pytest.mark.parametrize("launcher", ["vllm_launcher.py", "sglang_launcher.py"])
def test_the_launchers_pass_a_head_on_by_the_variable_of_the_api(launcher: str) -> None:
    assert f'"{names.ENV_HEAD}"' in mounted_files()[launcher]


def test_the_error_object_is_the_contracts() -> None:
    error = contract.CallerError(code="sample_too_long", message="m", length_tokens=2, limit_tokens=1)
    answer = score_middleware.error_answer("sample_too_long", "m", length_tokens=2, limit_tokens=1)
    assert answer == error.to_wire()


def test_files_are_written_for_processes(tmp_path: Path) -> None:
    write_mounted_files(tmp_path / "new" / "folder")
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {*MOUNTED_FILES, DOWNLOAD_PACKAGE}

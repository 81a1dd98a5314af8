"""What is mounted needs nothing that its image lacks, and is the same whenever it is made."""

import ast
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from rewardpool_api import names
from rewardpool_worker import mounted
from rewardpool_worker.mounted import router_files, worker_files, write_mounted_files, write_worker_zip, zipped_modules

IN_THE_IMAGE = {
    *("sglang", "huggingface_hub", "boto3", "botocore", "prometheus_client", "safetensors", "torch", "transformers"),
    *("uvicorn", "vllm"),
}
OWN = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in zipped_modules()}
PROGRAMS = {
    path.removesuffix(".py").replace("/", ".")
    for path, text in zipped_modules().items()
    if "/" in path and b"\ndef main(" in text and not path.endswith("__main__.py")
}
LAZY = {"rewardpool_api.contract": {"orjson"}, "rewardpool_api.teacher_wire": {"numpy"}}
"""Imported by a function: one that no engine calls, and one that teachers call, whose engines have NumPy."""


def imports(text: bytes) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    froms = {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and n.level == 0}
    return plain | froms


@pytest.mark.parametrize("path", zipped_modules())
def test_a_module_of_the_zip_needs_nothing_that_an_image_lacks(path: str) -> None:
    if path == "rewardpool_api/__init__.py":
        return  # what it names is for those who have pydantic, and imported when it is used
    used = imports(zipped_modules()[path]) - LAZY.get(path.removesuffix(".py").replace("/", "."), set())
    foreign = {name.split(".")[0] for name in used - OWN}
    assert foreign <= sys.stdlib_module_names | IN_THE_IMAGE


def test_a_python_without_anything_installed_starts_every_program_of_the_zip(tmp_path: Path) -> None:
    program = write_worker_zip(tmp_path)
    script = f"""
import sys
sys.path.insert(0, {str(program)!r})
from importlib import import_module
for name in {sorted(PROGRAMS)!r}:
    import_module(name)
"""
    bare = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, timeout=60)
    assert bare.returncode == 0, bare.stderr


@pytest.mark.parametrize("name", ["vlm", "vlm.program", "head_tokens", ""])
def test_what_is_no_program_of_the_zip_is_refused_by_name(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(write_worker_zip(tmp_path)), name], capture_output=True, text=True, timeout=60
    )
    assert (
        done.returncode,
        f"must be a module of rewardpool_worker.engine_side with a function main, not {name!r}" in done.stderr,
    ) == (2, True)


def test_a_program_of_the_zip_is_run_with_its_arguments(tmp_path: Path) -> None:
    command = [sys.executable, str(write_worker_zip(tmp_path)), "download.program", "--help"]
    assert "usage: " in subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


def test_the_zip_depends_on_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = worker_files()
    monkeypatch.setattr("time.time", lambda: 2e9)
    mounted._zip.cache_clear()
    assert worker_files() == before
    assert {entry.date_time for entry in ZipFile(BytesIO(mounted._zip())).infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_all_files_fit_into_one_config_map() -> None:
    assert sum(map(len, {**worker_files(), **router_files()}.values())) < 500_000


@pytest.mark.parametrize("variable", [names.ENV_KEY_FILE, names.ENV_ADMIN_KEY_FILE, names.ENV_MEMORY_BYTES])
def test_the_router_launcher_reads_the_variables_of_the_api(variable: str) -> None:
    assert f'"{variable}"'.encode() in mounted._launcher()


def test_files_are_written_for_processes(tmp_path: Path) -> None:
    write_mounted_files(tmp_path / "new" / "folder")
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {*worker_files(), *router_files()}

"""`rewardpool verify` on a real pool of this machine: one whose model only its own code can score."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.custom_head import expected, token_ids, write_checkpoint
from support.local_machine import POOL, LocalMachine, finish, local_machine
from typer.testing import CliRunner

from rewardpool_api import names
from rewardpool_cli import app
from rewardpool_cli.commands.verify import screen
from rewardpool_cli.verification import Tolerance, compare
from rewardpool_cli.verification.reference import environment

TEXTS = ["a", "hello world", "ümläut 日本", "two\nlines"]
HEAD = {"type": "LMHead", "token": "yes"}
SECONDS = 500
ADAPTED = {
    "model": {"source": "hf://org/rm", "adapters": [{"name": "safe", "source": "file:///safe"}]},
    "engine": {"dtype": "float32"},
}


def manifest(folder: Path, **spec: Any) -> Path:
    """A pool of the tiny model with a head of its own."""
    checkpoint = folder / "model"
    if not checkpoint.exists():
        write_checkpoint(checkpoint)
    namespace, _, name = POOL.partition("/")
    body = {
        "model": {"source": f"file://{checkpoint}", "trustRemoteCode": True},
        "engine": {"name": "transformers", "dtype": "float32"},
        "worker": {"gpus": 0, "drainSeconds": 10},
        **spec,
    }
    metadata = {"name": name, "namespace": namespace}
    path = folder / "pool.yaml"
    path.write_text(
        json.dumps({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": body})
    )
    return path


def golden(folder: Path, *, shift: float = 0.0, score: bool = True) -> Path:
    path = folder / f"golden{shift}{score}.jsonl"
    lines = [{"text": text, **({"score": expected(token_ids(text)) + shift} if score else {})} for text in TEXTS]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ({}, [], "give --golden FILE, or --transformers"),
        ({}, ["--golden", "GOLDEN"], "line 1 has no score to compare with"),
        ({"model": {"source": "hf://org/rm", "type": "Generative"}, "engine": {}}, ["--transformers"], "is Generative"),
        ({"model": {"source": "hf://org/rm"}, "engine": {}}, ["--transformers"], "give --max-abs-diff"),
        (
            {"model": {"source": "hf://org/rm", "head": HEAD}, "engine": {}},
            ["--transformers"],
            "for spec.model.head give",
        ),
        (ADAPTED, ["--golden", "GOLDEN", "--adapter", "saef"], "--adapter saef is not among spec.model.adapters: safe"),
        (ADAPTED, ["--transformers", "--adapter", "safe"], "for --adapter give --golden"),
    ],
    ids=[
        "nothing to compare with",
        "texts alone",
        "a judge",
        "no number format",
        "a declared head",
        "an adapter that is not there",
        "an adapter by transformers",
    ],
)
def test_what_cannot_be_compared_is_refused_and_nothing_is_asked(
    tmp_path: Path, spec: dict[str, Any], options: list[str], words: str
) -> None:
    given = [str(golden(tmp_path, score=False)) if option == "GOLDEN" else option for option in options]
    result = CliRunner().invoke(app, ["verify", "-f", str(manifest(tmp_path, **spec)), *given])
    assert result.exit_code != 0
    assert words in str(result.exception)


def test_a_pool_that_says_trust_remote_code_runs_nothing_here_without_the_callers_own_word(tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    interpreter.chmod(0o755)
    result = CliRunner().invoke(
        app,
        ["verify", "-f", str(manifest(tmp_path)), "--transformers"],
        env={names.ENV_SERVER_PYTHON: str(interpreter)},
    )
    assert "give --trust-remote-code" in str(result.exception)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("trusted", "token"), [(False, "hf_1"), (True, None)])
def test_the_process_that_loads_the_model_has_no_credentials_of_the_caller(trusted: bool, token: str | None) -> None:
    secrets = {"KUBECONFIG": "/k", "AWS_SECRET_ACCESS_KEY": "a", "REWARDPOOL_KEY_FILE": "/f", "SSH_AUTH_SOCK": "/s"}
    environ = {**secrets, "PATH": "/bin", "HOME": "/home/me", "HF_TOKEN": "hf_1"}
    given = environment(environ, home=Path("/empty"), trusted=trusted)
    assert not secrets.keys() & given.keys()
    assert given.get("HF_TOKEN") == token
    assert (given["HOME"], given["HF_HUB_CACHE"]) == ("/empty", "/home/me/.cache/huggingface/hub")


def test_the_screen_shows_the_verdict_the_histogram_and_the_worst_text() -> None:
    found = compare([(1, "good", 9.0), (2, "[red]bad[/]", 1.0)], [9.0625, "silence"], Tolerance(dtype="bfloat16"))
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(screen(found, pool="rl/rm", reference="golden", allowed="0.25"))
    shown = console.export_text()
    assert "rl/rm against golden: does not hold: 1 of 2 texts are off" in shown
    assert "below 1e-01" in shown
    assert "silence ([red]bad[/])" in shown


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMachine]:
    """The pool, up on this machine."""
    with local_machine(tmp_path_factory.mktemp("verify")) as machine:
        up = machine.start("up", "-f", manifest(machine.home), "--detach", "--wait-seconds", "300")
        said, _ = up.communicate(timeout=SECONDS)
        assert up.returncode == 0, said
        yield machine


async def verified(machine: LocalMachine, *options: str | Path) -> tuple[int, str]:
    return await finish(machine.start("verify", "-f", machine.home / "pool.yaml", *options))


@pytest.mark.real
async def test_a_live_pool_is_verified_against_a_golden_file_and_against_transformers(serving: LocalMachine) -> None:
    code, said = await verified(serving, "--golden", golden(serving.home))
    assert (code, "against golden: holds" in said) == (0, True), said
    code, said = await verified(serving, "--golden", golden(serving.home, shift=0.01), "--json")
    found = json.loads(said[said.index("{") :])
    assert (code, found["holds"], found["texts"], found["rank_flips"]) == (1, False, len(TEXTS), 0)
    assert found["max_abs_diff"] == pytest.approx(0.01, abs=1e-5)
    code, said = await verified(serving, "--golden", golden(serving.home, shift=0.01), "--max-abs-diff", "0.02")
    assert code == 0, said
    texts = golden(serving.home, score=False)
    code, said = await verified(serving, "--transformers", "--trust-remote-code", "--golden", texts)
    assert (code, "against transformers: holds" in said) == (0, True), said

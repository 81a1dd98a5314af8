"""Scores by transformers on the same weights, in float32: run by the servers' interpreter, which has torch."""

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rewardpool_api import RewardPool, parse_source
from rewardpool_local.machine import server_python
from rewardpool_worker.mounted import write_worker_zip

MOST_LINE_BYTES = 64 * 1024 * 1024
PASSED_VARIABLES: Final = (
    *("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "HF_ENDPOINT", "HF_HUB_OFFLINE"),
)


class NoReferenceError(Exception):
    """The scores to compare with are missing; the text says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Settings of the process that loads the model; nothing here is from the pool."""

    device: str
    """As torch calls it; the weights, four bytes each, need room there."""
    trust_remote_code: bool


def checkpoint_of(pool: RewardPool) -> str:
    """The model as transformers takes it: a folder, or a repository of the hub.

    Raises:
        NoReferenceError: it is not on this machine.
    """
    source = parse_source(pool.spec.model.source)
    if source.scheme not in ("file", "hf"):
        raise NoReferenceError(
            f"--transformers needs the weights on this machine, and spec.model.source is {source.scheme}://: use a"
            " manifest whose source is file:// or hf://, or give the scores by --golden FILE"
        )
    if source.scheme == "file" and not Path(source.location, "config.json").is_file():
        raise NoReferenceError(f"--transformers needs the weights on this machine: no config.json in {source.location}")
    return source.location


async def scores_by_transformers(
    pool: RewardPool,
    texts: Sequence[str],
    reference: Reference,
    *,
    environ: Mapping[str, str],
    on_progress: Callable[[int], None],
) -> list[float | str]:
    """The score of each text, or why it has none.

    Args:
        environ: says which interpreter has torch; of it the process is given PASSED_VARIABLES.

    Raises:
        NoReferenceError: the model cannot be loaded, or no score came for as long as a replica may take to start.
    """
    arguments = _arguments(pool, reference)
    with tempfile.TemporaryDirectory(prefix="rewardpool-verify-") as name:
        folder = Path(name)
        program, inputs, said = write_worker_zip(folder), folder / "texts.jsonl", folder / "said.log"
        inputs.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        with inputs.open("rb") as stdin, said.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                server_python(environ),
                *(str(program), "transformers_reference", *arguments),
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env={**environment(environ, home=folder, trusted=reference.trust_remote_code), **_offline(pool)},
                limit=MOST_LINE_BYTES,
            )
        try:
            return await _read(process, len(texts), said, seconds=pool.spec.start_seconds, on_progress=on_progress)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def environment(environ: Mapping[str, str], *, home: Path, trusted: bool) -> dict[str, str]:
    """The variables of the process that loads the model: no credential, and another home than the caller's.

    Args:
        home: An empty folder.
        trusted: Whether it may run code that is not ours. Then it has no token of a hub either.
    """
    passed = PASSED_VARIABLES if trusted else (*PASSED_VARIABLES, "HF_TOKEN")
    cache = Path(environ.get("HF_HOME") or Path(environ.get("HOME") or "/nonexistent", ".cache/huggingface"))
    return {
        **{name: environ[name] for name in passed if name in environ},
        "HOME": str(home),
        "HF_HOME": str(home / "huggingface"),
        "HF_HUB_CACHE": environ.get("HF_HUB_CACHE") or str(cache / "hub"),
    }


def _arguments(pool: RewardPool, reference: Reference) -> list[str]:
    arguments = ["--model", checkpoint_of(pool), "--device", reference.device]
    if parse_source(pool.spec.model.source).scheme == "hf":
        arguments += ["--revision", pool.spec.model.revision]
    if reference.trust_remote_code:
        arguments += ["--trust-remote-code"]
    if pool.spec.engine.max_model_len is not None:
        arguments += ["--max-model-len", str(pool.spec.engine.max_model_len)]
    return arguments


def _offline(pool: RewardPool) -> dict[str, str]:
    # The files are all there; looking for newer ones on a hub costs seconds, or minutes without a network.
    return {"HF_HUB_OFFLINE": "1"} if parse_source(pool.spec.model.source).scheme == "file" else {}


async def _read(
    process: asyncio.subprocess.Process, count: int, said: Path, *, seconds: float, on_progress: Callable[[int], None]
) -> list[float | str]:
    found: list[float | str] = []
    if process.stdout is None:
        raise RuntimeError("the process has no output")
    while len(found) < count:
        try:
            async with asyncio.timeout(seconds):
                line = await process.stdout.readline()
        except TimeoutError:
            message = f"transformers gave no score within {seconds:g} s; give the scores by --golden FILE"
            raise NoReferenceError(message) from None
        if not line:
            words = _last_line(said) or f"it ended with {await process.wait()}"
            raise NoReferenceError(f"transformers gave no scores: {words.removeprefix('model refused: ')}")
        entry = json.loads(line)
        found.append(entry["score"] if "score" in entry else str(entry["problem"]))
        on_progress(len(found))
    return found


def _last_line(said: Path) -> str:
    return " ".join(said.read_text(errors="replace").strip().splitlines()[-1:])

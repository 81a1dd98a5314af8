"""Replicas of a real engine on this machine, all started at once, behind a real router.

An engine's start is a minute of imports, so the replicas of a pool start side by side, and a test module shares them.
"""

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.env_vars import env_vars
from support.fleet import ROOT, server_python
from support.launch_target import KEY, target_in
from support.patience import PATIENCE
from support.ports import free_port
from support.processes import RealProcess, http

from rewardpool_api import RewardPoolSpec, names
from rewardpool_api.pool import RouterFlavor
from rewardpool_operator.routers.flags import router_flags
from rewardpool_operator.routers.programs import PROGRAMS
from rewardpool_worker import router_launcher
from rewardpool_worker.diagnosis import diagnose
from rewardpool_worker.engines import engine_for
from rewardpool_worker.engines.vllm import SERVER_MODULE

START_SECONDS = 400.0
"""A start of SGLang took 60 s alone, and 240 s beside other suites; a second one beside it doubles that."""
REFUSED_SECONDS = 5.0
"""A worker that gives an engine's fault as its reason for so long, a probe a second, does not become ready."""
ADMIN_KEY = "the-routers-own-key"
SERVED_NAME = "rm"
ON_CPU: dict[str, dict[str, Any]] = {
    "vllm": {
        "args": ["--enforce-eager", "--distributed-executor-backend", "uni"],
        "env": env_vars({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}),
    },
    "sglang": {
        "args": ["--device", "cpu", "--mem-fraction-static", "0.3", "--max-total-tokens", "16384"],
        "env": env_vars({"SGLANG_USE_CPU_ENGINE": "1"}),
    },
    "transformers": {},
}
"""What each engine is given on a CPU, as docs/engines.md says."""

SERVER_MODULES = {"vllm": SERVER_MODULE, "sglang": "sglang.launch_server"}
"""The modules by which the engines start themselves."""


@dataclass(frozen=True)
class Replicas:
    """Workers that score, and the router in front of them."""

    urls: tuple[str, ...]
    router: str
    logs: tuple[Path, ...]
    start_seconds: float
    """From the start of the processes until each of them had given a score."""

    def ask(self, given: Any, *, url: str | None = None, model: str = SERVED_NAME) -> Any:
        """Score by the router, or by one worker; returns the answer's JSON."""
        request = {"model": model, "input": given}
        status, _, answer = http("POST", (url or self.router) + "/v1/embeddings", request, key=KEY, seconds=300)
        assert status == 200, answer
        return answer

    def scores(self, given: Any, *, url: str | None = None) -> list[list[float]]:
        """The score of each sample of a list, and the values of its steps; fails when a sample is refused."""
        answer = self.ask(given, url=url)
        assert "error" not in answer, answer
        return [numbers(item) for item in answer["data"]]


def numbers(item: Mapping[str, Any]) -> list[float]:
    """What a pool says of a sample: its score, and the values of its steps where it has steps."""
    (score,) = item["embedding"]
    return [score, *item.get("steps", ())]


class RefusedError(Exception):
    """The engine does not serve this model; the text says why, as a pool's condition would."""


def engine_python(name: str) -> str:
    """The interpreter that has an engine; skips the test, saying so, where there is none."""
    if name != "sglang":
        return server_python()
    python = os.environ.get("REWARDPOOL_SGLANG_PYTHON") or str(ROOT / ".rewardpool/venvs/sglang/bin/python")
    if not Path(python).exists():
        pytest.skip(f"needs SGLang: run `make setup-sglang` (no {python})")
    return python


def spec_of(engine: str, folder: Path, head: dict[str, Any] | None = None) -> RewardPoolSpec:
    """A pool's spec for a reward model in a folder, on a CPU in fp32.

    Raises:
        RefusedError: the API refuses such a pool.
    """
    on_cpu = {"name": engine, "dtype": "float32", "maxModelLen": 1024, **ON_CPU[engine]}
    model = {"source": f"file://{folder}", **({"head": head} if head else {})}
    try:
        return RewardPoolSpec.model_validate({"model": model, "engine": on_cpu})
    except ValueError as error:
        raise RefusedError(str(error)) from None


@contextmanager
def replicas(spec: RewardPoolSpec, folder: Path, *, count: int = 2) -> Iterator[Replicas]:
    """Start a pool's workers and its router.

    Raises:
        RefusedError: a worker ended before it was ready, or says for good why it is not.
    """
    with ExitStack() as stack:
        began = time.monotonic()
        workers = [_start(spec, folder / f"worker-{index}", stack) for index in range(count)]
        for process, url in workers:
            _until_ready(process, url)
        seconds = time.monotonic() - began
        urls = tuple(url for _, url in workers)
        yield Replicas(urls, start_router(urls, folder, stack), tuple(process.log for process, _ in workers), seconds)


def _start(spec: RewardPoolSpec, folder: Path, stack: ExitStack) -> tuple[RealProcess, str]:
    folder.mkdir(parents=True)
    target = target_in(folder, served_name=SERVED_NAME)
    target = dataclasses.replace(target, python=(engine_python(spec.engine.name),))
    launch = engine_for(spec.engine.name).launch(spec, target)
    process = RealProcess(launch.argv, env=launch.env, log=folder / "engine.log", cwd=folder)
    return stack.enter_context(process), f"http://{target.host}:{target.port}"


@contextmanager
def bare_engine(spec: RewardPoolSpec, folder: Path) -> Iterator[str]:
    """Start the engine alone with a worker's flags, and yield its URL, which takes no key."""
    name = spec.engine.name
    folder.mkdir(parents=True)
    target = dataclasses.replace(target_in(folder, served_name=SERVED_NAME), python=(engine_python(name),))
    argv = [*engine_for(name).launch(spec, target).argv]
    flags = argv[argv.index(f"{name}_launcher") + 1 :]
    if name == "vllm":
        for ours in ("-m", "--middleware", "--worker-extension-cls"):
            at = flags.index(ours)
            del flags[at : at + 2]
    env = {variable.name: variable.value or "" for variable in spec.engine.env}
    command = [*target.python, "-m", SERVER_MODULES[name], *flags]
    with RealProcess(command, env=env, log=folder / "engine.log", cwd=folder) as process:
        url = f"http://{target.host}:{target.port}"
        process.until(
            lambda: http("GET", url + "/health")[0] == 200, seconds=START_SECONDS, what="the engine answers", every=0.5
        )
        yield url


def _until_ready(process: RealProcess, url: str) -> None:
    deadline = time.monotonic() + START_SECONDS * PATIENCE
    refused_since = None
    while (answer := http("GET", url + names.READY_PATH, seconds=60))[0] != 200:
        if process.ended:
            code = process.exit_code(seconds=1)
            raise RefusedError(diagnose(exit_code=code, log=process.log.read_text(errors="replace")).message)
        reason = (answer[2] or {}).get("reason", "")
        # An engine that has answered says the same of the next probe.
        if not reason.startswith("EngineFaultError"):
            refused_since = None
        elif time.monotonic() - (refused_since := refused_since or time.monotonic()) > REFUSED_SECONDS:
            raise RefusedError(reason)
        if time.monotonic() > deadline:
            pytest.fail(f"not ready:\n{process.tail()}")
        time.sleep(0.5)


def start_router(urls: Sequence[str], folder: Path, stack: ExitStack, *, flavor: RouterFlavor = "sglang-router") -> str:
    """A real router in front of workers that are ready; returns its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "key").write_text(KEY)
    (folder / "admin").write_text(ADMIN_KEY)
    flags = router_flags(
        flavor=flavor,
        host="127.0.0.1",
        port=(port := free_port()),
        metrics_host="127.0.0.1",
        metrics_port=free_port(),
        request_timeout_seconds=300,
        shutdown_grace_seconds=5,
    )
    env: dict[str, str] = {names.ENV_ROUTER_PACKAGE: PROGRAMS[flavor].package}
    env |= {names.ENV_KEY_FILE: str(folder / "key"), names.ENV_ADMIN_KEY_FILE: str(folder / "admin")}
    argv = [server_python(), router_launcher.__file__, *flags]
    process = stack.enter_context(RealProcess(argv, env=env, log=folder / "router.log", cwd=folder))
    router = f"http://127.0.0.1:{port}"
    process.until(lambda: http("GET", router + "/health")[0] == 200, seconds=20, what="the router answers")
    for url in urls:
        worker = {"url": url, **PROGRAMS[flavor].worker(SERVED_NAME)}
        assert http("POST", router + "/workers", worker, key=ADMIN_KEY)[0] == 202
    joined = lambda: (http("GET", router + "/workers", key=ADMIN_KEY)[2] or {}).get("total") == len(urls)  # noqa: E731
    process.until(joined, seconds=20, what="the workers have joined")
    process.until(lambda: http("GET", router + "/readiness")[0] == 200, seconds=20, what="a worker is ready")
    return router

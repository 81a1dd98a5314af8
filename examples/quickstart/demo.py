"""The whole product in one run, as `make demo`: a fleet, a training job that finds it by name, and a murdered worker.

    models    a reward model and a policy, made on the spot (models.py)
    pool      `rewardpool up -f pool.yaml`: two real vLLM replicas behind the real sglang-router
    training  two ranks under torchrun; all they know of the pool is `pool: default/quickstart`
    kill -9   half way, one replica with all its processes; the samples it held go to the other one
    result    a table, a picture and a summary.json; a lost sample, no kill, or no rise of the reward is a failure

Run by the trainer's interpreter. What it starts it also ends, whatever happens.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import yaml
from picture import draw
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from rewardpool_api import RewardPool, names
from rewardpool_runtime.state_files import is_supervised, pool_dir

HERE = Path(__file__).resolve().parent
NAMESPACE, NAME = "default", "quickstart"
RANKS = 2

READY_SECONDS = 240  # vLLM takes 40 to 90 s to its first score on two cores
TRAINING_SECONDS = 300
DRAIN_SECONDS = 60
KILL_SECONDS = 10
POLL_SECONDS = 0.25

console = Console()


class DemoError(Exception):
    """The demo cannot go on; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The interpreters and commands of the three environments."""

    rewardpool: Path
    server_python: Path
    trainer_python: Path

    def check(self) -> None:
        """Raise DemoError where one is missing."""
        for program in (self.rewardpool, self.server_python, self.trainer_python):
            if not os.access(program, os.X_OK):
                raise DemoError(f"{program} is missing: run `make setup`, or the whole demo with `make demo`")


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A worker that was killed."""

    worker: str
    after_step: int


def environment(programs: Programs, out: Path) -> dict[str, str]:
    """Return what the pool and the training job run with: a state folder of their own, and no other pool in sight."""
    elsewhere = {names.ENV_URL, names.ENV_POOL, names.ENV_KEY_FILE, "KUBECONFIG", "KUBERNETES_SERVICE_HOST"}
    kept = {name: value for name, value in os.environ.items() if name not in elsewhere}
    ours = {names.ENV_STATE_DIR: str(out / "state"), names.ENV_SERVER_PYTHON: str(programs.server_python)}
    return {**kept, **ours, "PYTHONUNBUFFERED": "1"}


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def running(argv: list[str | Path], *, env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program with its output in `log`; at the end it is asked to stop, and killed if it does not."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(DRAIN_SECONDS)
        except subprocess.TimeoutExpired:
            console.print(f"[red]{Path(argv[0]).name} did not stop within {DRAIN_SECONDS} s: killed[/red]")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(DRAIN_SECONDS)


def read_pool(env: Mapping[str, str], *, name: str = NAME) -> RewardPool | None:
    """Return the pool's object as its supervisor last wrote it, or None while there is no supervisor or no object."""
    folder = pool_dir(env, NAMESPACE, name)
    state = folder / names.STATE_FILE
    if not state.is_file() or not is_supervised(folder):
        return None
    return RewardPool.model_validate_json(state.read_text())


def stop_leftover(programs: Programs, env: Mapping[str, str]) -> None:
    """Bring down the pool of a demo that was killed before it could."""
    if is_supervised(pool_dir(env, NAMESPACE, NAME)):
        console.print("an earlier demo's pool is still running: bringing it down")
        subprocess.run([programs.rewardpool, "down", f"{NAMESPACE}/{NAME}"], env=env, check=True)


def wait_until_ready(process: subprocess.Popen[bytes], *, env: Mapping[str, str], log: Path) -> RewardPool:
    """Return the pool once all its replicas answer; shows what it is waiting for."""
    deadline = time.monotonic() + READY_SECONDS
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("pool: starting")
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise DemoError(f"`rewardpool up` ended with status {process.returncode}:\n{tail(log)}")
            pool = read_pool(env)
            if pool is not None:
                wanted, ready = pool.spec.replicas, pool.status.ready_replicas
                condition = pool.status.condition("Serving")
                said = f": {escape(condition.message.splitlines()[0])}" if condition and condition.message else ""
                progress.update(task, description=f"pool: {ready} of {wanted} replicas ready{said}")
                if condition and condition.status == "True" and ready == wanted:
                    return pool
            time.sleep(POLL_SECONDS)
    raise DemoError(f"the pool is not ready after {READY_SECONDS} s; its log {log} ends with:\n{tail(log)}")


def kill_one_worker(env: Mapping[str, str], *, name: str = NAME) -> str | None:
    """End a ready worker with all its processes, as a lost node would; returns its name, None where none is ready."""
    pool = read_pool(env, name=name)
    for worker in pool.status.workers if pool else []:
        if worker.phase != "Ready" or worker.pid is None:
            continue
        try:
            leader = psutil.Process(worker.pid)
            os.killpg(worker.pid, signal.SIGKILL)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue  # it has just ended by itself, which is no kill of ours
        leader.wait(KILL_SECONDS)
        return worker.name
    return None


def read_steps(metrics: Path) -> list[dict[str, Any]]:
    """Return the steps that have been completed, one record each."""
    if not metrics.is_file():
        return []
    # The last line may be half written.
    return [json.loads(line) for line in metrics.read_text().splitlines(keepends=True) if line.endswith("\n")]


def watch(
    process: subprocess.Popen[bytes],
    output: Path,
    *,
    env: Mapping[str, str],
    steps: int,
    seconds: float,
    name: str = NAME,
    show: Callable[[list[dict[str, Any]]], None] = lambda done: None,
) -> list[Kill]:
    """Wait for a training job, and kill a worker of its pool when half of its steps are done.

    `show` is called with the completed steps at each poll.

    Raises:
        DemoError: The job failed, or was not done in time.
    """
    kills: list[Kill] = []
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise DemoError(f"training is not done after {seconds} s")
        done = read_steps(output / "metrics.jsonl")
        show(done)
        if not kills and len(done) >= steps // 2 and (worker := kill_one_worker(env, name=name)):
            kills.append(Kill(worker=worker, after_step=len(done)))
            console.print(f"[red]kill -9[/red] of worker {worker} after step {len(done)}")
        time.sleep(POLL_SECONDS)
    if process.returncode:
        raise DemoError(f"training ended with status {process.returncode}")
    return kills


def train(programs: Programs, *, env: Mapping[str, str], out: Path, steps: int) -> list[Kill]:
    """Run the training job to its end, and kill a worker when half of its steps are done."""
    output, log = out / "train", out / "train.log"
    (output / "metrics.jsonl").unlink(missing_ok=True)
    (output / "metrics.json").unlink(missing_ok=True)
    torchrun = [programs.trainer_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    job = [*torchrun, "-m", "rewardpool_train", HERE / "train.yaml", "--output", output]
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with running(job, env=env, log=log) as process, Progress(*columns, console=console) as progress:
        bar = progress.add_task("training", total=steps)

        def show(done: list[dict[str, Any]]) -> None:
            reward = f", reward {done[-1]['reward_mean']:.3f}" if done and done[-1]["reward_mean"] is not None else ""
            progress.update(bar, completed=len(done), description=f"training{reward}")

        try:
            return watch(process, output, env=env, steps=steps, seconds=TRAINING_SECONDS, show=show)
        except DemoError as error:
            raise DemoError(f"{error}; its log {log} ends with:\n{tail(log)}") from error


def summarise(pool: RewardPool, totals: Mapping[str, Any], kills: list[Kill]) -> dict[str, Any]:
    """Return the contents of summary.json; every figure is the training job's own."""
    own = {"world_size", "steps", "samples", "scored", "lost", "retried", "reward_mean_first", "reward_mean_last"}
    return {
        "engine": pool.spec.engine.name,
        "router": "sglang-router",
        "replicas": pool.spec.replicas,
        **{name: value for name, value in totals.items() if name in own},
        "worker_kills": len(kills),
        "reward_window_steps": totals["reward_window_steps"],
        "seconds": totals["seconds"],
    }


def failures(summary: Mapping[str, Any]) -> list[str]:
    """Return what the demo has not shown, which is empty when all went well."""
    found = []
    if summary["lost"] != 0:
        found.append(f"{summary['lost']} samples were lost")
    if summary["worker_kills"] < 1:
        found.append("no worker was killed: none was ready when half of the steps were done")
    first, last = summary["reward_mean_first"], summary["reward_mean_last"]
    if first is None or last is None or last <= first:
        found.append(f"the mean reward did not rise: {first} at first, {last} at last")
    return found


def table(summary: Mapping[str, Any], kills: list[Kill]) -> Table:
    """Return the result for people."""
    seconds, window = summary["seconds"], summary["reward_window_steps"]
    shown = Table(title="one manifest, one config key, no lost sample", show_header=False)
    shown.add_row("pool", f"{summary['replicas']} x {summary['engine']} behind {summary['router']}")
    shown.add_row("trainer", f"{summary['world_size']} FSDP2 ranks, {summary['steps']} steps of GRPO")
    shown.add_row(
        "killed with -9", ", ".join(f"{kill.worker} after step {kill.after_step}" for kill in kills) or "none"
    )
    counts = f"{summary['samples']} sent, {summary['scored']} scored, {summary['retried']} retried"
    shown.add_row("samples", f"{counts}, [bold]{summary['lost']} lost[/bold]")
    first, last = (
        "none" if value is None else f"{value:.3f}"
        for value in (summary["reward_mean_first"], summary["reward_mean_last"])
    )
    shown.add_row("mean reward", f"{first} in the first {window} steps, [bold]{last}[/bold] in the last {window}")
    shown.add_row("rollout", f"{seconds['rollout']:.1f} s")
    shown.add_row("waited for scores", f"{seconds['reward_exposed']:.1f} s")
    shown.add_row("update", f"{seconds['update']:.1f} s")
    shown.add_row("all steps", f"{seconds['total']:.1f} s")
    return shown


def run(programs: Programs, out: Path) -> int:
    """Run the demo; returns the exit status."""
    programs.check()
    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.json").unlink(missing_ok=True)
    env = environment(programs, out)
    steps = yaml.safe_load((HERE / "train.yaml").read_text())["steps"]
    if subprocess.run([programs.trainer_python, HERE / "models.py"], env=env, check=False).returncode:
        raise DemoError("the models could not be made; the lines above say why")
    stop_leftover(programs, env)
    log = out / "pool.log"
    with running([programs.rewardpool, "up", "-f", HERE / "pool.yaml"], env=env, log=log) as process:
        pool = wait_until_ready(process, env=env, log=log)
        console.print(f"pool {pool.key} is ready at {pool.status.url}")
        kills = train(programs, env=env, out=out, steps=steps)
        console.print("bringing the pool down")
    summary = summarise(pool, json.loads((out / "train" / "metrics.json").read_text()), kills)
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    draw(read_steps(out / "train" / "metrics.jsonl"), [kill.after_step for kill in kills], out / "demo.png")
    console.print(table(summary, kills))
    console.print(f"summary: {out / 'summary.json'}\npicture: {out / 'demo.png'}", soft_wrap=True)
    for failure in failures(summary):
        console.print(f"[red]failed:[/red] {failure}")
    return 1 if failures(summary) else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Read the command line and run the demo."""
    parser = argparse.ArgumentParser(description="Bring up a pool, train against it, kill a worker half way.")
    parser.add_argument("--out", type=Path, required=True, help="folder for results and logs")
    parser.add_argument("--rewardpool", type=Path, required=True, help="the rewardpool command")
    parser.add_argument("--server-python", type=Path, required=True, help="interpreter that has vLLM and the router")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)  # the same orderly end as for Ctrl-C
    programs = Programs(
        rewardpool=given.rewardpool.absolute(),
        server_python=given.server_python.absolute(),
        trainer_python=Path(sys.executable),
    )
    try:
        return run(programs, given.out.absolute())
    except DemoError as error:
        console.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; what was started has been stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())

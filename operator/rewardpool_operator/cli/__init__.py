"""The command line, `rewardpool`: pools on this machine, a score, the operator, the CRD.

    up, scale, down, status    a pool of this machine      local.commands, local.folder
    score                      any pool, as a trainer      the trainer's own client
    operator run, crd          Kubernetes                  main, rewardpool_api.crd

Exit codes: 0 done; 1 it was tried and failed; 2 it was refused and nothing was started.
"""

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from rewardpool.errors import RewardPoolError
from rewardpool_api import ManifestError, dump_manifest, load_manifest
from rewardpool_api.crd import crd_yaml
from rewardpool_operator.cli import scoring, screens
from rewardpool_operator.local import commands
from rewardpool_operator.local.folder import AlreadyRunningError, PoolFolder, all_folders, folder_of
from rewardpool_operator.local.machine import NotStartableError

REFUSED, FAILED = 2, 1
app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, help="Reward-model pools."
)
operator_app = typer.Typer(no_args_is_help=True, help="The Kubernetes operator.")
app.add_typer(operator_app, name="operator")

Name = Annotated[str | None, typer.Argument(help="The pool: NAME or NAMESPACE/NAME; may be left out if there is one.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]
WaitSeconds = Annotated[
    float | None, typer.Option(min=0, help="Give up after so long. Default: the manifest's progressDeadlineSeconds.")
]


@app.command()
def up(
    file: Annotated[
        Path, typer.Option("--file", "-f", exists=True, dir_okay=False, help="The manifest, as for kubectl apply.")
    ],
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Of the router. Default: a free one.")] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once the pool is ready; it runs on.")] = False,
    wait_seconds: WaitSeconds = None,
) -> None:
    """Run a pool on this machine, or give a running one its changed manifest.

    Example: rewardpool up -f pool.yaml
    """
    pool = load_manifest(file)
    seconds = pool.spec.rollout.progress_deadline_seconds if wait_seconds is None else wait_seconds
    running = folder_of(pool.key, os.environ)
    if running.is_supervised():
        _follow_change(commands.hand_over(pool, running), running, seconds)
        return
    screens.log_to_screen()
    folder = commands.prepare(pool, port=port, environ=os.environ)
    if detach:
        started = commands.start_in_background(folder, port=port, give_up_seconds=wait_seconds)
        # The supervisor gives up by itself; what it says last is to be shown. Some replicas are enough to go on with.
        complete = asyncio.run(screens.follow(started, seconds=seconds + commands.STOP_SECONDS))
        _exit_unless(complete or screens.is_ready(folder.read_pool_as_it_is()))
    else:
        _exit_unless(asyncio.run(_run_and_show(folder, port, wait_seconds)))


@app.command()
def scale(
    name: Annotated[str, typer.Argument(help="The pool: NAME or NAMESPACE/NAME.")],
    replicas: Annotated[int, typer.Argument(min=0, help="How many.")],
) -> None:
    """Change the number of replicas of a running pool; what is in flight finishes.

    Example: rewardpool scale quickstart 3
    """
    folder = _existing(name)
    change = commands.scale(folder, replicas)
    _follow_change(change, folder, change.wanted.spec.rollout.progress_deadline_seconds)


@app.command()
def down(name: Name = None) -> None:
    """Stop a pool: requests in flight finish, no process is left.

    Example: rewardpool down quickstart
    """
    folder = _existing(name)
    commands.down(folder, tell=lambda line: screens.err.print(line, soft_wrap=True))
    screens.out.print(f"{folder.pool_key} is down")


@app.command()
def status(name: Name = None, as_json: AsJson = False) -> None:
    """Show a pool: its workers and its conditions; without a name, all pools of this machine.

    Example: rewardpool status quickstart --json
    """
    folders = [_existing(name)] if name else all_folders(os.environ)
    pools = [pool for folder in folders if (pool := folder.read_pool_as_it_is())]
    if as_json:
        objects = [dump_manifest(pool) for pool in pools]
        typer.echo(json.dumps(objects[0] if name else {"items": objects}, indent=2))
    elif len(pools) == 1:
        screens.show_pool(pools[0])
    elif pools:
        screens.show_pools(pools)
    else:
        screens.out.print("no pool was started on this machine; `rewardpool up -f pool.yaml` starts one")


@app.command()
def score(
    text: Annotated[str, typer.Argument(help="What to score; for a Function pool, the solution.")],
    pool: Annotated[
        str | None, typer.Option(help="NAMESPACE/NAME. Default: as for a trainer, or the only one.")
    ] = None,
    ground_truth: Annotated[str, typer.Option(help="For a Function pool.")] = "",
    data_source: Annotated[str, typer.Option(help="For a Function pool.")] = "",
    wait_seconds: Annotated[float, typer.Option(min=0, help="How long to wait for a pool that is not ready.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Score one text as a trainer would; a Generative pool answers in words.

    Example: rewardpool score "The sky is blue." --pool default/quickstart
    """
    asked = scoring.Question(text=text, ground_truth=ground_truth, data_source=data_source)
    named = pool or (None if scoring.is_named_by_environment() else _only_pool())
    answer = asyncio.run(scoring.ask(asked, pool=named, wait_seconds=wait_seconds))
    typer.echo(json.dumps(answer) if as_json else answer.get("score", answer.get("text")))


@app.command()
def crd() -> None:
    """Print the CustomResourceDefinition.

    Example: rewardpool crd | kubectl apply --server-side -f -
    """
    typer.echo(crd_yaml(), nl=False)


@operator_app.command("run")
def operator_run(
    namespace: Annotated[list[str] | None, typer.Option(help="Watch only these. Default: all.")] = None,
    health_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Serve /healthz there.")] = None,
    verbose: Annotated[bool, typer.Option(help="Log every pass.")] = False,
) -> None:
    """Run the operator against the cluster of the kubeconfig, or of the pod.

    Example: rewardpool operator run --namespace rl
    """
    from rewardpool_operator.main import run  # kopf comes with the extra `operator` only

    run(namespaces=tuple(namespace or ()), health_port=health_port, verbose=verbose)


def main() -> None:
    """Entry point of the console script: errors become one message and an exit code."""
    try:
        app()
    except (ManifestError, NotStartableError) as error:
        _end(str(error), REFUSED)
    except ValidationError as error:
        _end("\n".join(problem["msg"] for problem in error.errors(include_url=False)), REFUSED)
    except (AlreadyRunningError, commands.NotRunningError, RewardPoolError, OSError) as error:
        _end(str(error), FAILED)
    except ModuleNotFoundError as error:
        _end(f"{error}; the operator needs `pip install 'rewardpool[operator]'`", FAILED)


def _end(message: str, code: int) -> None:
    screens.err.print(message, markup=False, soft_wrap=True)
    sys.exit(code)


async def _run_and_show(folder: PoolFolder, port: int | None, give_up_seconds: float | None) -> bool:
    """Supervise in this process and show the start beside it."""
    wanted = folder.read_wanted()
    supervising = asyncio.create_task(commands.supervise_async(folder, port=port, give_up_seconds=give_up_seconds))
    if wanted is None:
        return await supervising
    showing = asyncio.create_task(screens.follow(commands.Up(folder, wanted), seconds=float("inf")))
    try:
        succeeded = await supervising
    finally:
        showing.cancel()
        # It takes its table off the screen, which is ours to write on only then.
        with suppress(asyncio.CancelledError):
            await showing
    if not succeeded:
        screens.tell_trouble(folder)
    return succeeded


def _follow_change(change: commands.Up | None, folder: PoolFolder, seconds: float) -> None:
    if change is None:
        screens.out.print(f"{folder.pool_key} runs already, from the same manifest; nothing to do")
        return
    screens.err.print(f"{folder.pool_key} runs already and gets its changed manifest")
    # A rollout that fails is said to have failed by its supervisor, after the same time.
    longest = seconds + commands.STOP_SECONDS
    _exit_unless(asyncio.run(screens.follow(change, seconds=longest, serves_already=True)))
    screens.out.print(f"{folder.pool_key} is as the manifest says")


def _existing(name: str | None) -> PoolFolder:
    folder = folder_of(name or _only_pool() or "", os.environ)
    if folder.read_pool() is None:
        known = ", ".join(each.pool_key for each in all_folders(os.environ)) or "none"
        raise commands.NotRunningError(f"name a pool of this machine ({name or 'none'} is not one); known: {known}")
    return folder


def _only_pool() -> str | None:
    folders = all_folders(os.environ)
    return folders[0].pool_key if len(folders) == 1 else None


def _exit_unless(succeeded: bool) -> None:
    if not succeeded:
        raise typer.Exit(FAILED)

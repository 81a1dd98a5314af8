"""`rewardpool up`: a pool on this machine, from a manifest."""

import asyncio
import os
from contextlib import suppress
from time import monotonic
from typing import Annotated

import typer

from rewardpool_cli import progress, screens
from rewardpool_cli.errors import exit_unless
from rewardpool_cli.files import ManifestFile, folder_of_file, read_pool
from rewardpool_local import commands
from rewardpool_local.folder import PoolFolder, folder_of
from rewardpool_local.machine import unheeded
from rewardpool_local.supervisor import StoppedEarlyError

WaitSeconds = Annotated[
    float | None, typer.Option(min=0, help="Give up after so long. Default: the manifest's progressDeadlineSeconds.")
]


def up(
    file: ManifestFile,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Of the router. Default: a free one.")] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once the pool is ready; it runs on.")] = False,
    wait_seconds: WaitSeconds = None,
) -> None:
    """Run a pool on this machine, or give a running one its changed manifest or code.

    Example: rewardpool up -f pool.yaml
    """
    asked_at = monotonic()
    pool, project = read_pool(file), folder_of_file(file)
    for line in unheeded(pool):
        screens.err.print(line, style="yellow", markup=False, soft_wrap=True)
    seconds = pool.spec.start_seconds if wait_seconds is None else wait_seconds
    running = folder_of(pool.key, os.environ)
    if running.is_supervised():
        progress.follow_change(
            commands.hand_over(pool, project, running, port=port, environ=os.environ), running, seconds
        )
        return
    screens.log_to_screen()
    folder = commands.prepare(pool, project, port=port, environ=os.environ)
    if detach:
        started = commands.start_in_background(folder, port=port, give_up_seconds=wait_seconds, asked_at=asked_at)
        # The supervisor gives up by itself; what it says last is to be shown. Some replicas are enough to go on with.
        complete = asyncio.run(progress.follow(started, seconds=seconds + commands.STOP_SECONDS))
        exit_unless(complete or progress.is_serving(folder.read_pool_as_it_is()))
    else:
        try:
            exit_unless(asyncio.run(_run_and_show(folder, port, wait_seconds, asked_at)))
        except StoppedEarlyError as error:
            screens.err.print(f"{folder.pool_key}: {error}", markup=False, soft_wrap=True)
            raise typer.Exit(error.exit_code) from None


async def _run_and_show(folder: PoolFolder, port: int | None, give_up_seconds: float | None, asked_at: float) -> bool:
    wanted = folder.read_wanted()
    supervising = asyncio.create_task(
        commands.supervise_async(folder, port=port, give_up_seconds=give_up_seconds, asked_at=asked_at)
    )
    if wanted is None:
        return await supervising
    showing = asyncio.create_task(progress.follow(commands.Up(folder, wanted), seconds=float("inf")))
    try:
        succeeded = await supervising
    finally:
        showing.cancel()
        # It takes its table off the screen, which is ours to write on only then.
        with suppress(asyncio.CancelledError):
            await showing
    if not succeeded:
        progress.print_failure(folder)
    return succeeded

"""The command line, `rewardpool`, which is also the plugin that kubectl runs for `kubectl rewardpool`.

    up                                 a pool of this machine               up, progress; rewardpool_local
    down, delete                       a pool of this machine               stopping; rewardpool_local
    status, top, logs, scale, explain  a pool of this machine or a cluster  targets decides which; cluster
    page                               all pools of this machine            rewardpool_local.page
    restart, rollback                  a pool of a cluster                  rollouts
    rotate-key                         a pool of a cluster                  rotation
    score                              any pool, as a trainer               the trainer's own client
    doctor                             no pool: this machine, cluster       doctor
    models, init                       no pool: manifests for models        catalogue
    verify                             any pool, against known scores       verify; verification
    gateway                            any pool, for who can only POST      rewardpool.gateway
    simulate                           no pool: simulated policies          rewardpool_simulator
    trace record, show                 any pool; what simulate takes        rewardpool_simulator.recording
    operator run, crd                  Kubernetes                           running; rewardpool_api.crd

Each is imported when it is called (`commands`). Results go to standard output, progress and errors to standard error.

Exit codes: 0 done; 1 it was tried and failed; 2 it was refused, nothing was started or changed; 130, 143 interrupted.
"""

import sys
from typing import Annotated

import typer

from rewardpool_cli.commands import Commands
from rewardpool_cli.program import program

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(show: bool) -> None:
    """Print it, and end."""
    if show:
        from importlib.metadata import version  # takes a sixth of what `--help` takes

        typer.echo(version("rewardpool"))
        raise typer.Exit


@app.callback()
def rewardpool(
    _: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Reward-model pools."""


def main() -> None:
    """Entry point of the console scripts: errors become one message and an exit code."""
    try:
        app(prog_name=program())
    except Exception as error:
        # Here, since most commands succeed, and these know all that can go wrong.
        from rewardpool_cli import endings, screens

        message, code = endings.message_and_code(error)
        screens.err.print(message, markup=False, soft_wrap=True)
        sys.exit(code)

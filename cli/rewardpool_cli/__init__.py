"""The command line, `rewardpool`, which is also the plugin that kubectl runs for `kubectl rewardpool`.

Each command is a module of `commands` by its name, imported when it is called. Beside them are what several share:

    options, targets        arguments, and where a pool is: on this machine or in a cluster
    cluster, waiting        a cluster's pools, and following a change of one
    progress                following a pool of this machine
    screens, tables         where commands write, and in which form
    errors, endings         how a command ends that fails
    explain, doctor, catalogue, verification   what is worked out by the commands of these names; of `models`, `verify`

Results go to standard output, progress and errors to standard error.

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

"""The command line, `rewardpool`, which is also the plugin that kubectl runs for `kubectl rewardpool`.

    up, down                           a pool of this machine               up, progress; rewardpool_local
    status, top, logs, scale, explain  a pool of this machine or a cluster  targets decides which; cluster
    restart, rollback                  a pool of a cluster                  rollouts
    rotate-key                         a pool of a cluster                  rotation
    score                              any pool, as a trainer               the trainer's own client
    models, init                       no pool: manifests for models        catalogue
    verify                             any pool, against known scores       verify; verification
    gateway                            any pool, for who can only POST      rewardpool.gateway
    simulate                           no pool: simulated policies          rewardpool_simulator
    trace record, show                 any pool; what simulate takes        rewardpool_simulator.recording
    operator run, crd                  Kubernetes                           running; rewardpool_api.crd

Results go to standard output, progress and errors to standard error.

Exit codes: 0 done; 1 it was tried and failed; 2 it was refused and nothing was started or changed; 130 interrupted.
"""

import sys

import typer
from pydantic import ValidationError

from rewardpool.errors import RewardPoolError
from rewardpool_api import ManifestError
from rewardpool_cli import (
    explaining,
    gateway,
    logs,
    models,
    rollouts,
    rotation,
    running,
    scale,
    score,
    screens,
    simulate,
    status,
    top,
    traces,
    up,
    verify,
)
from rewardpool_cli.errors import FAILED, REFUSED, CommandError
from rewardpool_cli.targets import program
from rewardpool_local.commands import NotRunningError
from rewardpool_local.folder import AlreadyRunningError
from rewardpool_local.machine import NotStartableError

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, help="Reward-model pools."
)
for command in (
    up.up,
    up.down,
    status.status,
    top.top,
    explaining.explain,
    logs.logs,
    scale.scale,
    rollouts.restart,
    rollouts.rollback,
    rotation.rotate_key,
    score.score,
    verify.verify,
    gateway.gateway,
    models.models,
    models.init,
    simulate.simulate,
    running.crd,
):
    app.command()(command)
operator_app = typer.Typer(no_args_is_help=True, help="The Kubernetes operator.")
operator_app.command("run")(running.operator_run)
app.add_typer(operator_app, name="operator")
app.add_typer(traces.trace_app, name="trace")


def main() -> None:
    """Entry point of the console scripts: errors become one message and an exit code."""
    try:
        app(prog_name=program())
    except CommandError as error:
        _end(str(error), error.exit_code)
    except (ManifestError, NotStartableError) as error:
        _end(str(error), REFUSED)
    except ValidationError as error:
        _end("\n".join(problem["msg"] for problem in error.errors(include_url=False)), REFUSED)
    except (AlreadyRunningError, NotRunningError, RewardPoolError, OSError) as error:
        _end(str(error), FAILED)
    except ModuleNotFoundError as error:
        _end(f"{error}; the operator needs `pip install 'rewardpool[operator]'`", FAILED)


def _end(message: str, code: int) -> None:
    screens.err.print(message, markup=False, soft_wrap=True)
    sys.exit(code)

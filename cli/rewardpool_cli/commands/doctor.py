"""`rewardpool doctor`: what is installed, what can be reached, and what the user may do."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Final

import typer
from rich.table import Table
from rich.text import Text

from rewardpool_cli import screens
from rewardpool_cli.doctor import machine
from rewardpool_cli.doctor.finding import Finding, Place, broken
from rewardpool_cli.doctor.runner import Check, examine
from rewardpool_cli.errors import FAILED
from rewardpool_cli.options import AsJson, Context, Local, Namespace
from rewardpool_cli.targets import Target, Where, locate
from rewardpool_kube.configuration import is_configured

CLUSTER_SECONDS: Final = 12.0  # for the credentials, then for all calls side by side: five each
STYLES: Final = {"ok": "green", "warning": "yellow", "missing": "yellow", "failed": "red"}
NO_CLUSTER: Final = Finding(
    place="cluster",
    name="kubeconfig",
    state="missing",
    found="no cluster is configured",
    remedy="for pools in a cluster set $KUBECONFIG, or write ~/.kube/config",
    essential=True,
)
PLACES: Final[Mapping[Place, str]] = {"machine": "this machine", "cluster": "the cluster"}


def doctor(
    namespace: Namespace = None,
    context: Context = None,
    local: Local = None,
    as_json: AsJson = False,
) -> None:
    """Say what is installed, what can be reached and what you may do, each with its remedy where it is not so.

    Exit code 0 means that nothing that is needed is missing or failed; otherwise it is 1. What is needed follows from
    where the other commands look for pools; --local and --cluster choose. On this machine: the interpreter of
    REWARDPOOL_SERVER_PYTHON, a router in it, free ports, a state folder that can be written; no engines and no GPUs.
    In a cluster: its API server, the CRD, the rights to get and list RewardPools; not kubectl, nor the right to create.

    Nothing is changed. Servers have 5 seconds to answer, and programs 15.

    Example: rewardpool doctor --local
    """
    target = locate(None, Where(namespace=namespace, context=context, local=local))
    needed: Place = "machine" if target.is_local else "cluster"
    only = needed if local is not None or context is not None else None
    findings = examine([check for check in _checks(target, os.environ) if only in (None, check.place)])
    problems = broken(findings, needed)
    if as_json:
        said = {"needed": needed, "ok": not problems, "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(said, indent=2))
    else:
        screens.out.print(table(findings, needed))
        screens.out.print(f"\n{conclusion(problems, needed)}", markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(FAILED)


def _checks(target: Target, environ: Mapping[str, str]) -> list[Check]:
    return [*machine.checks(environ), machine.kubectl_check(environ), _cluster_check(target, environ)]


def _cluster_check(target: Target, environ: Mapping[str, str]) -> Check:
    if not is_configured(environ):
        return Check(place="cluster", name="kubeconfig", run=lambda: [NO_CLUSTER], seconds=1.0)
    # Slow to import, so only where there is one to ask; and here, since it is no silence of the API server.
    from rewardpool_cli.doctor.cluster import check

    return Check(
        place="cluster",
        name="API server",
        run=partial(check, target, environ),
        seconds=CLUSTER_SECONDS,
        essential=True,
    )


def table(findings: Sequence[Finding], needed: Place) -> Table:
    """A line each; what is broken and needed stands out."""
    screen = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("where", "what", "state", "found", "what to do"):
        screen.add_column(title, overflow="fold", no_wrap=title in ("where", "state"))
    problems = broken(findings, needed)
    for finding in findings:
        style = "bold red" if finding in problems else STYLES[finding.state]
        state, found, remedy = Text(finding.state, style=style), Text(finding.found), Text(finding.remedy)
        screen.add_row(PLACES[finding.place], Text(finding.name), state, found, remedy)
    return screen


def conclusion(problems: Sequence[Finding], needed: Place) -> str:
    """The last line."""
    pools = "pools on this machine" if needed == "machine" else "pools in the cluster"
    if not problems:
        return f"nothing is broken that {pools} need"
    return f"{pools} need: {', '.join(problem.name for problem in problems)}"

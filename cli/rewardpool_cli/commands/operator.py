"""`rewardpool operator run`: the Kubernetes operator."""

from typing import Annotated

import typer

from rewardpool_operator.logs import LogFormat

app = typer.Typer(no_args_is_help=True, help="The Kubernetes operator.")


@app.command("run")
def operator_run(
    namespace: Annotated[list[str] | None, typer.Option(help="Watch only these. Default: all.")] = None,
    health_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Serve /healthz there.")] = None,
    metrics_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Serve /metrics there.")] = None,
    page_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve the page in the browser there, to holders of tokens.")
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="Several operators: the one that holds this Lease acts. Without it this must be the only one.",
        ),
    ] = None,
    concurrent_upgrades: Annotated[
        int,
        typer.Option(min=1, help="Pools whose routers are replaced at a time because the operator was upgraded."),
    ] = 1,
    log_format: Annotated[LogFormat, typer.Option(help="For people or for collectors.")] = "text",
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every pass.")] = False,
) -> None:
    """Run the operator against the cluster of the kubeconfig, or of the pod.

    Example: rewardpool operator run --namespace rl --lease rewardpool-system/rewardpool
    """
    from rewardpool_operator.main import Settings, run  # kopf comes with the extra `operator` only

    run(
        Settings(
            namespaces=tuple(namespace or ()),
            health_port=health_port,
            metrics_port=metrics_port,
            page_port=page_port,
            lease=_namespace_and_name(lease) if lease else None,
            concurrent_upgrades=concurrent_upgrades,
            log_format=log_format,
            verbose=verbose,
        )
    )


def _namespace_and_name(lease: str) -> tuple[str, str]:
    namespace, _, name = lease.partition("/")
    if not namespace or not name or "/" in name:
        raise typer.BadParameter(f"--lease must be NAMESPACE/NAME, not {lease!r}")
    return namespace, name

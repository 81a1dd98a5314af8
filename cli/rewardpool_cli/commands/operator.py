"""`rewardpool operator`: the Kubernetes operator, and the process that is reached over the network in its place."""

from pathlib import Path
from typing import Annotated

import typer

from rewardpool_operator.logs import LogFormat

app = typer.Typer(no_args_is_help=True, help="The Kubernetes operator.")


HealthPort = Annotated[int | None, typer.Option(min=1, max=65535, help="Serve /healthz there.")]
MetricsPort = Annotated[int | None, typer.Option(min=1, max=65535, help="Serve /metrics there.")]
PagePort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Serve the page in the browser there, to holders of tokens.")
]
Format = Annotated[LogFormat, typer.Option(help="For people or for collectors.")]


@app.command("run")
def operator_run(
    namespace: Annotated[list[str] | None, typer.Option(help="Watch only these. Default: all.")] = None,
    health_port: HealthPort = None,
    metrics_port: MetricsPort = None,
    page_port: PagePort = None,
    front_socket: Annotated[
        Path | None,
        typer.Option(help="Answer `rewardpool operator front` at this Unix socket, which serves the above instead."),
    ] = None,
    front_page: Annotated[bool, typer.Option("--front-page", help="Answer it for the pools too.")] = False,
    probe_socket: Annotated[
        Path | None,
        typer.Option(help="Answer the kubelet's probe, `python -m rewardpool_operator.healthy`, at this Unix socket."),
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
    log_format: Format = "text",
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every pass.")] = False,
) -> None:
    """Run the operator against the cluster of the kubeconfig, or of the pod.

    Example: rewardpool operator run --namespace rl --lease rewardpool-system/rewardpool
    """
    from rewardpool_operator.front import Ports
    from rewardpool_operator.main import OperatorOptions, run  # kopf comes with the extra `operator` only

    run(
        OperatorOptions(
            namespaces=tuple(namespace or ()),
            ports=Ports(health=health_port, metrics=metrics_port, page=page_port),
            front_socket=front_socket,
            front_page=front_page,
            probe_socket=probe_socket,
            lease=_namespace_and_name(lease) if lease else None,
            concurrent_upgrades=concurrent_upgrades,
            log_format=log_format,
            verbose=verbose,
        )
    )


@app.command("front")
def operator_front(
    socket: Annotated[Path, typer.Option(help="The operator's `--front-socket`.")],
    namespace: Annotated[list[str] | None, typer.Option(help="Those that the operator watches. Default: all.")] = None,
    health_port: HealthPort = None,
    metrics_port: MetricsPort = None,
    page_port: PagePort = None,
    cluster_ca: Annotated[
        Path | None, typer.Option(help="Certificates of the API server, for the page. Default: the system's.")
    ] = None,
    log_format: Format = "text",
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every request.")] = False,
) -> None:
    """Serve an operator's health, metrics and page without its rights, as the chart has it.

    Example: rewardpool operator front --socket /run/rewardpool/front.sock --health-port 8081
    """
    from rewardpool_operator.front import FrontOptions, Ports, run

    ports = Ports(health=health_port, metrics=metrics_port, page=page_port)
    run(
        FrontOptions(
            socket=socket,
            ports=ports,
            namespaces=tuple(namespace or ()),
            cluster_ca=cluster_ca,
            log_format=log_format,
            verbose=verbose,
        )
    )


def _namespace_and_name(lease: str) -> tuple[str, str]:
    namespace, _, name = lease.partition("/")
    if not namespace or not name or "/" in name:
        raise typer.BadParameter(f"--lease must be NAMESPACE/NAME, not {lease!r}")
    return namespace, name

"""`rewardpool operator run` and `crd`: what a cluster needs to have pools."""

from typing import Annotated

import typer

from rewardpool_api.crd import crd_yaml


def crd() -> None:
    """Print the CustomResourceDefinition.

    Example: rewardpool crd | kubectl apply --server-side -f -
    """
    typer.echo(crd_yaml(), nl=False)


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

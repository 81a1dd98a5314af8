"""`rewardpool crd`: the CustomResourceDefinition."""

import typer

from rewardpool_api.crd import crd_yaml


def crd() -> None:
    """Print the CustomResourceDefinition.

    Example: rewardpool crd | kubectl apply --server-side -f -
    """
    typer.echo(crd_yaml(), nl=False)

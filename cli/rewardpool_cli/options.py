"""Arguments and options that mean the same in every command."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


def pools_here(incomplete: str) -> list[str]:
    """Return the shell's completions of a pool's name: the pools of this machine."""
    from rewardpool_local.folder import all_folders  # only when a shell asks

    keys = [folder.pool_key for folder in all_folders(os.environ)]
    names = [key.removeprefix("default/") for key in keys] + keys
    # A cluster would keep the shell waiting.
    return sorted({name for name in names if name.startswith(incomplete)})


PoolName = Annotated[str, typer.Argument(metavar="POOL", help="NAME or NAMESPACE/NAME.", autocompletion=pools_here)]
ItsManifest = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="Its manifest, instead of its name; - is standard input."),
]
AnyPoolName = Annotated[
    str | None,
    typer.Argument(metavar="[POOL]", help="NAME or NAMESPACE/NAME. Default: all.", autocompletion=pools_here),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Of the pool. Default: that of the kubeconfig's context.")
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig. Implies --cluster.")]
Local = Annotated[
    bool | None,
    typer.Option(
        "--local/--cluster",
        help="Look on this machine or in the cluster only. Default: on this machine first; in the cluster only, when"
        " called as kubectl plugin.",
        show_default=False,
    ),
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces of the cluster.")]
AsJson = Annotated[bool, typer.Option("--json", help="Output JSON.")]


class Output(StrEnum):
    """A form of what is shown, by kubectl's names."""

    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"
    NAME = "name"


OutputForm = Annotated[
    Output | None,
    typer.Option("--output", "-o", help="name: NAMESPACE/NAME, a line each. wide: a line each, with model and engine."),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once instead of when it is done.")]

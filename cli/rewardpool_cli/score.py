"""`rewardpool score`: one question to any pool, as a trainer asks it."""

import asyncio
import json
from typing import Annotated

import typer

from rewardpool_cli import scoring
from rewardpool_cli.options import AsJson, Namespace
from rewardpool_cli.trainer_names import full_name


def score(
    text: Annotated[str, typer.Argument(help="What to score; for a Function pool, the solution.")],
    pool: Annotated[
        str | None, typer.Option(help="NAME or NAMESPACE/NAME. Default: as for a trainer, or the only one.")
    ] = None,
    namespace: Namespace = None,
    adapter: Annotated[str | None, typer.Option(help="One of the pool's LoRA adapters. Default: the base.")] = None,
    ground_truth: Annotated[str, typer.Option(help="For a Function pool.")] = "",
    data_source: Annotated[str, typer.Option(help="For a Function pool.")] = "",
    extra_info: Annotated[str, typer.Option(help="For a Function pool: a JSON object.")] = "",
    wait_seconds: Annotated[float, typer.Option(min=0, help="How long to wait for a pool that is not ready.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Score one text as a trainer would; a Generative pool answers in words.

    Example: rewardpool score "The sky is blue." --pool default/quickstart
    """
    question = scoring.Question(text=text, ground_truth=ground_truth, data_source=data_source, extra_info=extra_info)
    named = None if pool is None and scoring.is_named_by_environment() else full_name(pool, namespace)
    answer = asyncio.run(scoring.ask(question, pool=named, adapter=adapter, wait_seconds=wait_seconds))
    typer.echo(json.dumps(answer) if as_json else answer.get("score", answer.get("text")))

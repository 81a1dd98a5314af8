"""`rewardpool score`: one question to any pool, as a trainer asks it."""

import asyncio
import json
import os
import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rewardpool import FunctionSample, Pool, RewardConfig, Sample
from rewardpool.errors import PoolNotReadyError
from rewardpool.rewards.episode import read_extra_info
from rewardpool_api import names
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
    question = Question(text=text, ground_truth=ground_truth, data_source=data_source, extra_info=extra_info)
    named = None if pool is None and is_named_by_environment() else full_name(pool, namespace)
    answer = asyncio.run(ask(question, pool=named, adapter=adapter, wait_seconds=wait_seconds))
    typer.echo(json.dumps(answer) if as_json else answer.get("score", answer.get("text")))


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to score."""

    text: str
    ground_truth: str
    data_source: str
    extra_info: str
    """JSON text of an object, or nothing."""


async def ask(
    question: Question, *, pool: str | None, adapter: str | None = None, wait_seconds: float
) -> dict[str, Any]:
    """Get the answer to a question.

    Args:
        question: what to score.
        pool: `namespace/name`; None leaves it to the environment.
        adapter: one of its LoRA adapters; None is the model itself.
        wait_seconds: how long to wait for a pool that is not ready.

    Returns:
        `pool`, `url`, `seconds`, and `score` (or `text`, of a Generative pool); `info`, where a function returned more
        than its score.

    Raises:
        RewardPoolError: no pool, or no score; the text says why.
    """
    config = RewardConfig(pool=pool, adapter=adapter, wait_seconds=wait_seconds)
    async with Pool(config) as client:
        if client.endpoint.not_ready:  # a job waits for that; whoever sits at a terminal reads it
            found = client.endpoint
            raise PoolNotReadyError(f"RewardPool {found.pool} ({found.origin}) is not ready: {found.not_ready}")
        started = time.monotonic()
        answer: dict[str, Any] = {"pool": client.endpoint.pool, "url": client.endpoint.url}
        if client.endpoint.model_type == "Generative":
            answer["text"] = await client.judge([{"role": "user", "content": question.text}])
        elif client.endpoint.model_type == "Function":
            function = FunctionSample(
                data_source=question.data_source,
                solution_str=question.text,
                ground_truth=question.ground_truth,
                extra_info=read_extra_info(question.extra_info or None, label="--extra-info"),
            )
            scored = await client.scored(Sample(function=function))
            answer |= {"score": scored.value} | ({"info": scored.info} if scored.info else {})
        else:
            answer["score"] = await client.score(Sample(text=question.text))
        return {**answer, "seconds": round(time.monotonic() - started, 4)}


def is_named_by_environment() -> bool:
    """Whether the environment says which pool to ask."""
    return bool({names.ENV_POOL, names.ENV_URL} & os.environ.keys())

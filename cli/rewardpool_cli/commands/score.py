"""`rewardpool score`: one question to any pool, or a whole file of rows, as a trainer asks it."""

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rewardpool import FunctionSample, Pool, Reward, RewardConfig, Sample
from rewardpool._rewards.episode import read_extra_info
from rewardpool._rewards.rows import episode_of
from rewardpool.errors import UnscoredError
from rewardpool_cli.errors import RefusedError, exit_unless
from rewardpool_cli.options import AsJson, Namespace
from rewardpool_cli.scoring import (
    Adapter,
    Concurrency,
    Ignore,
    PoolOption,
    RewardFile,
    WaitSeconds,
    is_named_by_environment,
    refuse_unready,
    reward_spec,
    scored_file,
    summary,
)
from rewardpool_cli.trainer_names import full_name


def score(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT|FILE]",
            help="What to score; for a Function pool, the solution. With --out: a file of rows, .jsonl or .parquet.",
        ),
    ] = None,
    pool: PoolOption = None,
    namespace: Namespace = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Score the rows of a file into this one, .jsonl or .parquet."),
    ] = None,
    ignore: Ignore = None,
    reward: RewardFile = None,
    concurrency: Concurrency = None,
    prompt: Annotated[str | None, typer.Option(help="With --response: what was asked, in one user's turn.")] = None,
    response: Annotated[str | None, typer.Option(help="With --prompt: the answer that is scored.")] = None,
    messages: Annotated[
        str | None, typer.Option(metavar="JSON", help="A conversation; the last message, the assistant's, is scored.")
    ] = None,
    adapter: Adapter = None,
    ground_truth: Annotated[str, typer.Option(help="For a Function pool.")] = "",
    data_source: Annotated[str, typer.Option(help="For a Function pool.")] = "",
    extra_info: Annotated[str, typer.Option(help="For a Function pool: a JSON object.")] = "",
    wait_seconds: WaitSeconds = 0,
    as_json: AsJson = False,
) -> None:
    """Score one text, one conversation or the rows of a file as a trainer would.

    Of a text, a Generative pool answers in words. A file whose scoring was interrupted or killed goes on when the
    command is repeated. Exit codes: 0, every row has a score; 1, scoring stopped, or a row has none (the output says
    why); 2, the file, the output or the pool's settings were refused and nothing was scored.

    Example: rewardpool score "The sky is blue." --pool default/quickstart

    Example: rewardpool score rows.jsonl --pool rl/skywork --out scores.jsonl
    """
    question = SampleToScore(text=text or "", ground_truth=ground_truth, data_source=data_source, extra_info=extra_info)
    if out is not None:
        if text is None or [one for one in (prompt, response, messages) if one is not None]:
            raise RefusedError(
                "--out is for a file of rows: name it, and leave out --prompt, --response and --messages"
            )
        for option, given in (("ground-truth", ground_truth), ("data-source", data_source), ("extra-info", extra_info)):
            if given:
                raise RefusedError(f"--{option} is for one text: of a file it is a column of each row")
        spec = reward_spec(pool, namespace, reward, adapter=adapter, wait_seconds=wait_seconds, concurrency=concurrency)
        report = scored_file(spec, Path(text), out, ignore=ignore or ())
        summary(report, as_json=as_json)
        exit_unless(report.is_complete)
        return
    for option, value in (("ignore", ignore), ("reward", reward), ("concurrency", concurrency)):
        if value is not None:
            raise RefusedError(f"--{option} is for a file of rows: give --out FILE, or leave it out")
    named = None if pool is None and is_named_by_environment() else full_name(pool, namespace)
    if text is None:
        conversation = _conversation(prompt, response, messages)
        answer = ask_about(conversation, question, pool=named, adapter=adapter, wait_seconds=wait_seconds)
    else:
        if [one for one in (prompt, response, messages) if one is not None]:
            raise RefusedError("give a text, --prompt with --response, or --messages: one of the three")
        _refuse_file(text)
        answer = asyncio.run(score_one(question, pool=named, adapter=adapter, wait_seconds=wait_seconds))
    typer.echo(json.dumps(answer) if as_json else answer.get("score", answer.get("text")))


@dataclass(frozen=True, kw_only=True)
class SampleToScore:
    """Sample to score."""

    text: str
    ground_truth: str
    data_source: str
    extra_info: str
    """JSON text of an object, or nothing."""


async def score_one(
    question: SampleToScore, *, pool: str | None, adapter: str | None = None, wait_seconds: float
) -> dict[str, Any]:
    """Score one sample.

    Args:
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
        refuse_unready(client.endpoint)
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


def ask_about(
    conversation: tuple[Any, Any],
    question: SampleToScore,
    *,
    pool: str | None,
    adapter: str | None,
    wait_seconds: float,
) -> dict[str, Any]:
    """Get the score of a response to a prompt, in the reward model's chat template.

    Args:
        conversation: The prompt, and the response to it: texts, or lists of messages.
        pool: `namespace/name`; None leaves it to the environment.
        adapter: One of its LoRA adapters; None is the model itself.
        wait_seconds: How long to wait for a pool that is not ready.

    Returns:
        `pool`, `url`, `seconds`, `score`, and `info` where the pool says more than its score.

    Raises:
        RewardPoolError: Pool not found, or no score; the text says why.
    """
    prompt, response = conversation
    fields = {"ground_truth": question.ground_truth, "data_source": question.data_source}
    info = read_extra_info(question.extra_info or None, label="--extra-info")
    episode = episode_of(prompt, response, id="(given)", extra_info=info, **fields)
    with Reward(_fields(pool=pool, adapter=adapter, wait_seconds=wait_seconds)) as reward:
        [client] = reward.pools.values()
        refuse_unready(client.endpoint)
        started = time.monotonic()
        try:
            [rating] = reward.rate([episode])
        except UnscoredError as error:
            raise error.errors[0] from None
        seconds = round(time.monotonic() - started, 4)
        answer = {"pool": client.endpoint.pool, "url": client.endpoint.url, "score": rating.total}
        said = next(iter(rating.info.values()), None)
        return {**answer, **({"info": dict(said)} if said else {}), "seconds": seconds}


def _fields(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _conversation(prompt: str | None, response: str | None, messages: str | None) -> tuple[Any, Any]:
    """The prompt and the response of one conversation. Raises RefusedError."""
    if messages is None:
        if prompt is None or response is None:
            raise RefusedError("say what to score: a text, --prompt with --response, --messages, or a file with --out")
        return prompt, response
    if prompt is not None or response is not None:
        raise RefusedError("--messages has the whole conversation: leave out --prompt and --response")
    try:
        read = json.loads(messages)
    except ValueError as error:
        raise RefusedError(f"--messages is not JSON ({error}); give a list such as {_MESSAGES}") from None
    if not isinstance(read, list) or len(read) < 2:
        raise RefusedError(f"--messages must be a list of two messages or more, such as {_MESSAGES}")
    return read[:-1], read[-1:]


_MESSAGES = '[{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]'


def _refuse_file(text: str) -> None:
    """Refuse to score the name of a file as a text. Raises RefusedError."""
    if text.endswith((".jsonl", ".ndjson", ".parquet")) and Path(text).is_file():
        raise RefusedError(f"{text} is a file: give --out FILE to score its rows")

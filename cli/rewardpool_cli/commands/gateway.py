"""`rewardpool gateway`: a pool for trainers that can only POST."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from rewardpool._gateway.opened import open_pool
from rewardpool._gateway.running import key_for, parse_listen, serve
from rewardpool._gateway.server import TEACHER, GatewaySettings, gateway_app
from rewardpool._policy.text import PolicyText
from rewardpool._rewards import JobFacts
from rewardpool_api.names import GATEWAY_TIMEOUT_SECONDS
from rewardpool_cli import screens
from rewardpool_cli.options import Namespace, PoolName
from rewardpool_cli.trainer_names import full_name

ROUTES_OF_REWARDS = "get_reward, /slime and /run_code"


def gateway(
    name: PoolName,
    namespace: Namespace = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to answer.")] = "127.0.0.1:5000",
    key_file: Annotated[
        Path | None, typer.Option(help="Callers must present this key; made if missing. Needed unless on loopback.")
    ] = None,
    policy_tokenizer: Annotated[
        str | None,
        typer.Option(help="Folder or hub name: responses end in its special tokens, prompts have its chat template."),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="The reward model's, for a Discriminative pool. Default: that of its model.")
    ] = None,
    with_parts: Annotated[
        bool, typer.Option(help="slime gets every part beside the total (--reward-key total).")
    ] = False,
    teacher: Annotated[
        bool, typer.Option("--teacher", help="The pool is a Teacher: needed where only its URL is known.")
    ] = False,
    vocabulary: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="Of the student's vocabulary, which a Teacher must have."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="For one sample.")] = GATEWAY_TIMEOUT_SECONDS,
    wait_seconds: Annotated[float, typer.Option(min=0, help="How long to wait for a pool that is not ready.")] = 0,
) -> None:
    """Answer the protocols of OpenRLHF (/get_reward), slime (/slime) and SandboxFusion (/run_code) from a pool.

    A Teacher answers those of SGLang (/generate) and vLLM (/v1/completions, /inference/v1/generate).

    Example: rewardpool gateway rl/skywork --listen 127.0.0.1:5000 --policy-tokenizer Qwen/Qwen2.5-7B-Instruct
    """
    pool = full_name(name, namespace)
    host, port = parse_listen(listen)
    key = key_for(host, key_file)
    text = PolicyText.load(policy_tokenizer, field="--policy-tokenizer")
    spec: dict[str, Any] = {"pool": pool, "timeout": timeout, "wait_seconds": wait_seconds}
    # It stands for the job, whichever process of that asks.
    opening = open_pool(
        spec,
        JobFacts(rank=0, ranks=1),
        tokenizer=tokenizer,
        policy_tokenizer=policy_tokenizer,
        vocabulary=vocabulary,
        teacher=teacher,
        path="gateway",
    )
    app = gateway_app(opening, GatewaySettings(text=text, key=key, with_parts=with_parts, timeout=timeout))

    def ready(url: str) -> None:
        routes = "generate, /v1/completions and /inference/v1/generate" if TEACHER in app else ROUTES_OF_REWARDS
        screens.err.print(f"{pool} answers at {url}/{routes}", markup=False, soft_wrap=True)

    asyncio.run(serve(app, host=host, port=port, timeout=timeout, ready=ready))

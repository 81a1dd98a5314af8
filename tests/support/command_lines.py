"""Every manifest that is given out, and what the engines' own parsers say of its command line.

They are those of examples/, and those of the catalogue on each engine that serves the model.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import yaml
from support.fleet import ROOT
from support.replicas import engine_python

from rewardpool_api import RewardPool, names
from rewardpool_cli.catalogue import ENTRIES
from rewardpool_worker.engine_side import lora_adapters, sglang_launcher, vllm_launcher
from rewardpool_worker.engine_side.head_tokens import HeadCheckpoint, resolve
from rewardpool_worker.engines import LaunchTarget, engine_for
from rewardpool_worker.engines.launch import model_path

PARSERS = {
    "vllm": """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())
for line in sys.stdin:
    args = parser.parse_args(json.loads(line))
    validate_parsed_serve_args(args)
    print(args.model, args.served_model_name[0])
""",
    "sglang": """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs

parser = argparse.ArgumentParser(allow_abbrev=False)
ServerArgs.add_cli_args(parser)
for line in sys.stdin:
    args = parser.parse_args(json.loads(line))
    print(args.model_path, args.served_model_name)
""",
}
TARGET = LaunchTarget(served_name="rm", host="127.0.0.1", port=8000, download_dir="/model", adapters_dir="/adapters")


def manifests() -> list[dict[str, Any]]:
    """All of them, as their readers get them."""
    examples = sorted((ROOT / "examples").rglob("*.yaml"))
    documents = (each for path in examples for each in yaml.safe_load_all(path.read_text()))
    found = [each for each in documents if each.get("kind") == names.KIND]
    for entry in ENTRIES:
        if entry.manifest is not None:
            found += [entry.manifest, *(entry.on(engine) for engine in entry.also_on)]
    return found


def pools_on(engine: str) -> list[RewardPool]:
    """Those for one engine."""
    pools = map(RewardPool.model_validate, manifests())
    return [pool for pool in pools if pool.spec.engine.name == engine]


def command_lines(engine: str) -> list[list[str]]:
    """The arguments with which the engine is started, for each of its pools."""
    found = []
    for pool in pools_on(engine):
        argv = list(engine_for(engine).launch(pool.spec, TARGET).argv)
        start = next(at for at, word in enumerate(argv) if word in ("--model", "--model-path", "--function"))
        found.append([*argv[start:], *flags_of_head(pool, argv), *flags_of_adapters(pool)])
    return found


def flags_of_adapters(pool: RewardPool) -> list[str]:
    """What vLLM's launcher adds for adapters once it has their files, here of rank 4; no manifest has any on SGLang."""
    given = pool.spec.model.adapters
    shapes = {f"{lora_adapters.PREFIX}layer.lora_A.weight": (4, 8)}
    found = [lora_adapters.Adapter(one.name, f"/adapters/{one.name}", {}, shapes) for one in given]
    return lora_adapters.vllm_flags(found, {}, []) if found else []


def flags_of_head(pool: RewardPool, argv: list[str]) -> list[str]:
    """What the launcher adds for a head once it knows the tokenizer, here one that knows every token."""
    if pool.spec.model.head is None:
        return []
    head = pool.spec.model.head.model_dump(by_alias=True, exclude_none=True)
    of_vocabulary = head["type"] == "LMHead" or "yesToken" in head
    architecture = "LlamaForCausalLM" if of_vocabulary else "Qwen2ForRewardModel"
    checkpoint = HeadCheckpoint({"architectures": [architecture]}, lambda token: [sum(token.encode())], str)
    if pool.spec.engine.name == "sglang":
        return sglang_launcher.head_flags(resolve(head, checkpoint), checkpoint.as_classifier, argv)
    return vllm_launcher.head_flags(resolve(head, checkpoint), checkpoint.as_classifier, checkpoint.spell, argv)


def parsed(engine: str, lines: Sequence[list[str]]) -> list[str]:
    """The model and its served name as the engine's parser reads them, for each command line.

    Fails with the parser's words where it refuses one.
    """
    done = subprocess.run(
        [engine_python(engine), "-c", PARSERS[engine]],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "SGLANG_USE_CPU_ENGINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-len(lines) :]


def expected(engine: str) -> list[str]:
    """What `parsed` returns for `command_lines`."""
    return [f"{model_path(pool.spec, TARGET)} {TARGET.served_name}" for pool in pools_on(engine)]

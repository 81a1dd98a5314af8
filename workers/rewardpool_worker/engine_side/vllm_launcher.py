"""Starts vLLM: `python rewardpool_worker.zip vllm_launcher -m MODULE VLLM-FLAGS…`.

vLLM takes an unknown token of a head for the row of some other token, without a word. So `head_tokens` looks them up
first; likewise `lora_adapters` looks at the adapters' files, `step_memory` at the GPUs, and `writable_home` at HOME.
Variables that an image or a shell has are dropped where vLLM would not serve as it is asked to. Then this process
becomes vLLM with the flags it was given and those of head, adapters and memory. The middleware in that process finds
what was looked up in REWARDPOOL_HEAD.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from rewardpool_api.names import ENV_HEAD, ENV_SLEEP_MAX_ABS_DIFF
from rewardpool_worker.engine_side import step_memory
from rewardpool_worker.engine_side.head_tokens import resolve_or_refuse
from rewardpool_worker.engine_side.lora_adapters import adapters_or_refuse, vllm_flags
from rewardpool_worker.engine_side.writable_home import make_home_writable


def head_flags(
    head: dict[str, Any], as_classifier: str, spell: Callable[[int], str], given: Sequence[str]
) -> list[str]:
    """The flags of vLLM for a head; pure.

    Args:
        head: as `head_tokens.resolve` returns it.
        as_classifier: what a language model's architecture is called as a classifier.
        spell: from a token's id to its spelling in the vocabulary, in which vLLM takes it.
        given: vLLM's flags so far, of which --hf-overrides and --pooler-config are kept where the head says nothing.

    Returns:
        Flags to add at the end.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--hf-overrides", type=json.loads, default={})
    parser.add_argument("--pooler-config", type=json.loads, default={})
    own, _ = parser.parse_known_args(list(given))
    flags = []
    if "tokenIds" in head:
        overrides = {
            "architectures": [as_classifier],
            # A raw logit for each token. `from_2_way_softmax` has their difference, which no softcap can be applied to.
            "method": "no_post_processing",
            "classifier_from_token": [spell(one) for one in head["tokenIds"]],
        }
        flags += ["--hf-overrides", json.dumps({**own.hf_overrides, **overrides})]
    if head["type"] == "TokenLevel":
        pooler = {"task": "token_classify"}
        if "stepTokenId" in head:
            pooler |= {"tok_pooling_type": "STEP", "step_tag_id": head["stepTokenId"]}
        flags += ["--pooler-config", json.dumps({**own.pooler_config, **pooler})]
    return flags


def settle_variables(environ: MutableMapping[str, str]) -> None:
    """Remove a key of vLLM's own, which no request has, and the mode for developers where no engine sleeps."""
    environ.pop("VLLM_API_KEY", None)
    # A picture's address may lead to one inside the cluster otherwise, past --allowed-media-domains.
    environ.setdefault("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "0")
    if ENV_SLEEP_MAX_ABS_DIFF not in environ:
        environ.pop("VLLM_SERVER_DEV_MODE", None)


def main(argv: list[str]) -> int:
    """Become vLLM; returns only when it cannot be started, with the exit code."""
    settle_variables(os.environ)
    make_home_writable(os.environ)
    of_head, of_adapters = _flags_of_head(argv), adapters_or_refuse(argv, vllm_flags)
    of_memory = step_memory.flags_or_refuse(step_memory.VLLM, argv)
    if of_head is None or of_adapters is None or of_memory is None:
        return 2
    flags = [*of_head, *of_adapters, *of_memory]
    sys.stderr.flush()
    return os.execv(sys.executable, [sys.executable, *argv, *flags])  # noqa: S606 - argv as the operator made it


def _flags_of_head(argv: list[str]) -> list[str] | None:
    """Those of the head, none without one; None where it is refused."""
    if ENV_HEAD not in os.environ:
        return []
    found = resolve_or_refuse(json.loads(os.environ[ENV_HEAD]), argv, tokenizer_flag="--tokenizer")
    if found is None:
        return None
    head, checkpoint = found
    os.environ[ENV_HEAD] = json.dumps(head)
    return head_flags(head, checkpoint.as_classifier, checkpoint.spell, argv)

"""Starts vLLM for a pool with `spec.model.head`: `python vllm_launcher.py -m MODULE VLLM-FLAGS…`.

A head is declared in the tokenizer's own words (`yesToken: "yes"`), and vLLM's flags want ids, or tokens of which an
unknown one becomes the row of some other token without a word. So this one file, mounted into the stock image, looks
every token up in the checkpoint's tokenizer and the architecture up in its config.json, refuses with the field's path
what would score something else, and then becomes vLLM with the flags it was given and those of the head. It needs
nothing but the standard library and the transformers that vLLM brings.

The middleware in that process finds the step token's id in REWARDPOOL_HEAD, as `stepTokenId`.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

ENV_HEAD = "REWARDPOOL_HEAD"
ENV_MODEL_PATH = "REWARDPOOL_MODEL_PATH"
LANGUAGE_MODEL, CLASSIFIER = "ForCausalLM", "ForSequenceClassification"

Lookup = Callable[[str], list[int]]
"""From a token as somebody wrote it to its ids: one where it is a token."""


class HeadError(ValueError):
    """The checkpoint has no such head; the text has the field's path and says what to do."""


def head_flags(
    head: dict[str, Any], architecture: str, lookup: Lookup, spell: Callable[[int], str], given: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """The flags of vLLM for a head; pure.

    Args:
        head: `spec.model.head`.
        architecture: the first of `architectures` in the checkpoint's config.json.
        lookup: the tokenizer's.
        spell: from a token's id to its spelling in the vocabulary.
        given: vLLM's flags so far, of which --hf-overrides and --pooler-config are kept where the head says nothing.

    Returns:
        Flags to add at the end, and the head with the step token's id.

    Raises:
        HeadError: the checkpoint has no such head, or the tokenizer no such token.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--hf-overrides", type=json.loads, default={})
    parser.add_argument("--pooler-config", type=json.loads, default={})
    own, _ = parser.parse_known_args(list(given))
    if head["type"] == "LMHead":
        if not architecture.endswith(LANGUAGE_MODEL):
            raise HeadError(
                f"spec.model.head.type LMHead takes the logits of tokens, and the checkpoint is a {architecture}: it "
                f"needs an architecture that ends in {LANGUAGE_MODEL}"
            )
        fields = ("token",) if "token" in head else ("noToken", "yesToken")
        ids = [_one_id(head[field], field, lookup) for field in fields]
        if len(set(ids)) != len(ids):
            raise HeadError("spec.model.head.yesToken and noToken are one token to this tokenizer")
        overrides = {
            "architectures": [architecture.removesuffix(LANGUAGE_MODEL) + CLASSIFIER],
            # The second is the row of yes less the row of no: vLLM takes the token of no first.
            "method": "no_post_processing" if "token" in head else "from_2_way_softmax",
            "classifier_from_token": [spell(one) for one in ids],
        }
        return ["--hf-overrides", json.dumps({**own.hf_overrides, **overrides})], head
    if head["type"] != "TokenLevel":
        return [], head
    if architecture.endswith(LANGUAGE_MODEL):
        raise HeadError(
            f"spec.model.head.type TokenLevel needs a head with a value per token, and a {architecture} has none"
        )
    if "stepToken" not in head:
        if "Process" in architecture:
            raise HeadError(f"spec.model.head.stepToken must be set: {architecture} scores steps, not texts")
        return ["--pooler-config", json.dumps({**own.pooler_config, "task": "token_classify"})], head
    step = _one_id(head["stepToken"], "stepToken", lookup)
    pooler = {"task": "token_classify", "tok_pooling_type": "STEP", "step_tag_id": step}
    return ["--pooler-config", json.dumps({**own.pooler_config, **pooler})], {**head, "stepTokenId": step}


def _one_id(token: str, field: str, lookup: Lookup) -> int:
    ids = lookup(token)
    if len(ids) != 1:
        raise HeadError(
            f"spec.model.head.{field} {token!r} is {len(ids)} tokens to this checkpoint's tokenizer, not one: write it "
            "as its vocabulary spells it"
        )
    return ids[0]


def main(argv: list[str]) -> int:
    """Become vLLM; returns only when it cannot be started, with the exit code."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--revision")
    parser.add_argument("--tokenizer")
    parser.add_argument("--trust-remote-code", action="store_true")
    known, _ = parser.parse_known_args(argv)
    from transformers import AutoTokenizer, PreTrainedConfig

    path = os.environ[ENV_MODEL_PATH]
    config, _ = PreTrainedConfig.get_config_dict(path, revision=known.revision)
    tokenizer = AutoTokenizer.from_pretrained(
        known.tokenizer or path, revision=known.revision, trust_remote_code=known.trust_remote_code
    )
    vocabulary = tokenizer.get_vocab()

    def lookup(token: str) -> list[int]:
        if token in vocabulary:
            return [vocabulary[token]]
        return list(tokenizer.encode(token, add_special_tokens=False))

    try:
        architecture = str((config.get("architectures") or ["checkpoint without an architecture"])[0])
        head = json.loads(os.environ[ENV_HEAD])
        flags, head = head_flags(head, architecture, lookup, tokenizer.convert_ids_to_tokens, argv)
    except HeadError as error:
        # In the words that the diagnosis of a worker that ended looks for.
        print(f"model refused: {error}", file=sys.stderr)
        return 2
    os.environ[ENV_HEAD] = json.dumps(head)
    sys.stderr.flush()
    return os.execv(sys.executable, [sys.executable, *argv, *flags])  # noqa: S606 - argv as the operator made it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

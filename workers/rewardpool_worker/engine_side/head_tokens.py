"""A declared head in a checkpoint, for the launchers of vLLM and of SGLang: `spec.model.head` with token ids.

A head is declared in the tokenizer's own words (`yesToken: "yes"`), and engines want ids. This file looks every token
up in the checkpoint's tokenizer and the architecture up in its config.json, and refuses with the field's path what
would score something else. It needs the transformers that both engines bring.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rewardpool_api.names import ENV_MODEL_PATH

LANGUAGE_MODEL, CLASSIFIER = "ForCausalLM", "ForSequenceClassification"
SOFTCAP = "final_logit_softcapping"
SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier_scale", "dim_model_base")


class HeadError(ValueError):
    """The checkpoint has no such head; the text has the field's path and says what to do."""


@dataclass(frozen=True)
class HeadCheckpoint:
    """Files against which a head is resolved."""

    config: dict[str, Any]
    lookup: Callable[[str], list[int]]
    """From a token as somebody wrote it to its ids: one where it is a token."""
    spell: Callable[[int], str]

    @property
    def architecture(self) -> str:
        """The first that config.json names."""
        return str((self.config.get("architectures") or ["checkpoint without an architecture"])[0])

    @property
    def as_classifier(self) -> str:
        return self.architecture.removesuffix(LANGUAGE_MODEL) + CLASSIFIER


def read_checkpoint(argv: Sequence[str], *, tokenizer_flag: str) -> HeadCheckpoint:
    """Read the checkpoint that an engine's command line is for, in a folder or on a hub."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--revision")
    parser.add_argument(tokenizer_flag, dest="tokenizer")
    parser.add_argument("--trust-remote-code", action="store_true")
    known, _ = parser.parse_known_args(list(argv))
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

    return HeadCheckpoint(config, lookup, tokenizer.convert_ids_to_tokens)


def resolve(head: dict[str, Any], checkpoint: HeadCheckpoint) -> dict[str, Any]:
    """Find a head in a checkpoint; pure.

    Returns:
        `spec.model.head` with `tokenIds` where it names tokens of the language model's vocabulary, `softcap` where such
        a model bounds its logits, and `stepTokenId` where it has a step token. An LMHead's yes is before its no; a
        TokenLevel head's behind it, since the value of a step is the probability of the second of two labels.

    Raises:
        HeadError: the checkpoint has no such head, or the tokenizer no such token.
    """
    architecture = checkpoint.architecture
    if head["type"] == "LMHead":
        return _of_vocabulary(head, ("token",) if "token" in head else ("yesToken", "noToken"), checkpoint)
    if head["type"] != "TokenLevel":
        return head
    if "yesToken" in head:
        head = _of_vocabulary(head, ("noToken", "yesToken"), checkpoint)
    elif architecture.endswith(LANGUAGE_MODEL):
        raise HeadError(
            f"spec.model.head.type TokenLevel needs a head with a value per token, and a {architecture} has none: "
            "where two tokens of its vocabulary judge a step, set yesToken and noToken"
        )
    if "stepToken" in head:
        return {**head, "stepTokenId": _one_id(head["stepToken"], "stepToken", checkpoint)}
    if "Process" in architecture:
        raise HeadError(f"spec.model.head.stepToken must be set: {architecture} scores steps, not texts")
    return head


def resolve_or_refuse(
    head: dict[str, Any], argv: Sequence[str], *, tokenizer_flag: str
) -> tuple[dict[str, Any], HeadCheckpoint] | None:
    """Find a head in the checkpoint of an engine's command line; None where it has none, which is printed."""
    checkpoint = read_checkpoint(argv, tokenizer_flag=tokenizer_flag)
    try:
        return resolve(head, checkpoint), checkpoint
    except HeadError as error:
        # In the words that the diagnosis of a worker that ended looks for.
        print(f"model refused: {error}", file=sys.stderr)
        return None


def _of_vocabulary(head: dict[str, Any], fields: Sequence[str], checkpoint: HeadCheckpoint) -> dict[str, Any]:
    """A head with the ids of the tokens in its fields, and with what bounds their logits; raises HeadError."""
    architecture = checkpoint.architecture
    named = "type LMHead" if head["type"] == "LMHead" else "yesToken"
    if not architecture.endswith(LANGUAGE_MODEL):
        raise HeadError(
            f"spec.model.head.{named} takes the logits of tokens, and the checkpoint is a {architecture}: it needs an "
            f"architecture that ends in {LANGUAGE_MODEL}"
        )
    if scale := next((name for name in SCALES if checkpoint.config.get(name) not in (None, 1)), None):
        raise HeadError(
            f"spec.model.head.{named}: {scale} of the checkpoint's config.json changes the logits of {architecture} "
            "outside of its head, and the score would be without it: not supported"
        )
    ids = [_one_id(head[field], field, checkpoint) for field in fields]
    if len(set(ids)) != len(ids):
        raise HeadError("spec.model.head.yesToken and noToken are one token to this tokenizer")
    softcap = checkpoint.config.get(SOFTCAP)
    return {**head, "tokenIds": ids, **({"softcap": softcap} if softcap else {})}


def _one_id(token: str, field: str, checkpoint: HeadCheckpoint) -> int:
    ids = checkpoint.lookup(token)
    if len(ids) != 1:
        raise HeadError(
            f"spec.model.head.{field} {token!r} is {len(ids)} tokens to this checkpoint's tokenizer, not one: write it "
            "as its vocabulary spells it"
        )
    return ids[0]

"""Comparison of the vocabularies of student and teacher by digest: a token id must mean the same in both."""

from typing import Any

from rewardpool._discovery.endpoint import Endpoint
from rewardpool.errors import ConfigError
from rewardpool_api.teacher_wire import vocabulary_digest


def digest_of(tokenizer: Any, *, field: str) -> str:
    """Return the digest of a student's vocabulary, by a tokenizer of transformers, or its name. Raises ConfigError."""
    if isinstance(tokenizer, str):
        from rewardpool._rewards.chat.chat_template import (
            load_tokenizer,  # transformers, which no other part of a teacher needs
        )

        tokenizer = load_tokenizer(tokenizer, revision=None, field=field)
    if not hasattr(tokenizer, "get_vocab"):
        raise ConfigError(
            field, f"must be a tokenizer of transformers, a folder or a hub's name, not {tokenizer!r:.60}"
        )
    return vocabulary_digest(tokenizer.get_vocab())


def check_vocabulary(student: str, endpoint: Endpoint, *, field: str) -> None:
    """Raise ConfigError where a revision of a teacher is known to have another vocabulary than the student."""
    for model in endpoint.revisions:
        if model.tokenizer not in (None, student):
            raise ConfigError(
                field,
                f"has the vocabulary {student}, and {model.source} of {endpoint.pool} has {model.tokenizer}: one"
                " token id would stand for different tokens; ask a teacher with the student's vocabulary",
            )

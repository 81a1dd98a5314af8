"""A real tokenizer, made on the spot: one token per byte, with or without a BOS of its own."""

from collections.abc import Sequence
from typing import Any

import tokenizers
import transformers

BOS = "<|bos|>"
TEMPLATE = "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
TEMPLATE_WITH_BOS = "{{ bos_token }}" + TEMPLATE
TEMPLATE_WITHOUT_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system messages, please') }}{% endif %}" + TEMPLATE
)
PAD, END = "<|endoftext|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")


def byte_tokenizer(*, template: str, adds_bos: bool = False, controls: Sequence[str] = ROLES, end: str = END) -> Any:
    """A tokenizer with a BOS, which `adds_bos` makes it put in front of every text, as Llama's does.

    Args:
        template: The chat template.
        adds_bos: Whether it adds a BOS to texts.
        controls: Its control tokens beside BOS, padding and `end`.
        end: That ends a turn.
    """
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    if adds_bos:
        backend.add_special_tokens([BOS])
        special = [(BOS, backend.token_to_id(BOS))]
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=special
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BOS,
        eos_token=end,
        pad_token=PAD,
        additional_special_tokens=list(controls),
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )

"""The smallest real policy: a Qwen2 of one layer over a vocabulary of digits."""

from typing import Any

import tokenizers
import torch
import transformers

END, PAD = 10, 11


def make_tokenizer() -> Any:
    """Digits are tokens 0 to 9; a chat is its turns' digits, one after the other."""
    vocabulary = {str(digit): digit for digit in range(10)} | {"<end>": END, "<|endoftext|>": PAD}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<|endoftext|>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    backend.decoder = tokenizers.decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<end>",
        pad_token="<|endoftext|>",
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}",
    )


def make_policy(*, seed: int, hidden_size: int = 16, positions: int = 64, tied: bool = False) -> Any:
    """Random weights; they are large, so that the policy has preferences. vLLM on a CPU wants 64 hidden units."""
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=12,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=positions,
        initializer_range=0.2,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=END,
        tie_word_embeddings=tied,
    )
    return transformers.Qwen2ForCausalLM(config)

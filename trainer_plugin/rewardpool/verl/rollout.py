"""Conversion of one row of verl's DataProto to an Episode, read as verl's own reward managers do. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rewardpool._policy.response_end import TAIL_TOKENS
from rewardpool._rewards.episode import Episode, Message, medium_of, read_extra_info
from rewardpool.errors import ConfigError

# verl's number of turns where the policy was asked, and has answered once.
SINGLE_TURN = 2
# Name in `tool_extra_fields`: verl's agent loop puts the whole prompt there as well.
_KNOWN_ELSEWHERE = "raw_prompt"


def response_ids(tensors: Mapping[str, Any], others: Mapping[str, Any]) -> list[int]:
    """The response in the policy's tokens, without padding.

    Args:
        tensors: A row's tensors: `responses` of shape (response_length,), `attention_mask` of (length,).
        others: What else the row has. verl's agent loop gives `response_len`; a trajectory of several outputs is padded
            in a way that the attention mask alone cannot undo.
    """
    responses = tensors["responses"]
    length = others.get("response_len")
    if length is None:
        length = tensors["attention_mask"][-responses.shape[-1] :].sum()
    return [int(token) for token in responses[: int(length)].tolist()]


def prompt_tail_ids(tensors: Mapping[str, Any]) -> list[int] | None:
    """Return the end of the prompt in the policy's tokens; None where a row has no prompts.

    Args:
        tensors: A row's tensors: `prompts` of shape (prompt_length,), padded on the left.
    """
    prompts = tensors.get("prompts", None)
    return None if prompts is None else [int(token) for token in prompts[-TAIL_TOKENS:].tolist()]


def medium(others: Mapping[str, Any]) -> str | None:
    """Return a row's medium besides text, by verl's word: `image`, `video` or `audio`; None where it has none."""
    found = medium_of(others.get("raw_prompt", ()))
    if found is None:
        given = others.get("multi_modal_data") or {}
        found = next(
            (name.removesuffix("s") for name, values in given.items() if values is not None and len(values)), None
        )
    return None if found is None else found.removesuffix("_url")


def beside_prompt(others: Mapping[str, Any]) -> str | None:
    """Return the medium of which a row has more than its prompt's messages show; None where they show all of it."""
    shown: Counter[str] = Counter()
    for message in others.get("raw_prompt", ()):
        content = message.get("content")
        blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list | tuple) else []
        shown.update(str(block.get("type")).removesuffix("_url") for block in blocks)
    given = {name.removesuffix("s"): values for name, values in (others.get("multi_modal_data") or {}).items()}
    return next((name for name, values in given.items() if values is not None and len(values) > shown[name]), None)


def episode(
    others: Mapping[str, Any],
    response: str,
    token_ids: list[int],
    *,
    turns: Sequence[Message] | None = None,
    prompt_tail: str | None = None,
    max_tokens: int | None,
    eos: int | None,
) -> Episode:
    """Make an episode of what a row has beside its tensors.

    Args:
        others: The row's `non_tensor_batch`.
        token_ids: The response in the policy's tokens.
        turns: The response's turns, where it has several.
        prompt_tail: The last words of the prompt in the policy's chat template; None where they are not known.
        max_tokens: The longest response that the policy may write.

    Raises:
        ConfigError: The trainer left the prompt's messages out.
    """
    if "raw_prompt" not in others:
        raise ConfigError("data.return_raw_chat", "set it to True: the samples come without raw_prompt")
    uid = others.get("uid")
    at_limit = max_tokens is not None and len(token_ids) >= max_tokens
    return Episode(
        prompt=plain(others["raw_prompt"]),
        response=response,
        turns=turns,
        prompt_tail=prompt_tail,
        ground_truth=plain((others.get("reward_model") or {}).get("ground_truth")),
        data_source=str(others.get("data_source") or ""),
        extra_info=_extra_info(others),
        group=uid,
        response_ids=token_ids,
        truncated=at_limit and token_ids[-1] != eos,
        id=None if uid is None else str(uid),
    )


def _extra_info(others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping that verl gives a reward function as `extra_info`, with verl's names."""
    tool_fields = {
        name: value for name, value in (others.get("tool_extra_fields") or {}).items() if name != _KNOWN_ELSEWHERE
    }
    found = {
        **read_extra_info(others.get("extra_info"), label=str(others.get("uid") or "(of verl)")),
        **tool_fields,
        "num_turns": others.get("__num_turns__"),
        "rollout_reward_scores": others.get("reward_scores") or {},
    }
    return {str(name): plain(value) for name, value in found.items()}


def plain(value: Any) -> Any:
    """The value in Python's own types where numpy made it, so that it can be written as JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    # numpy's arrays and numbers, without importing numpy for the sake of their names
    if hasattr(value, "tolist"):
        return plain(value.tolist()) if getattr(value, "ndim", 0) else value.tolist()
    return value

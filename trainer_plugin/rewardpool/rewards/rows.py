"""Prompts and responses as trainers and notebooks hold them, a row for each response, as episodes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rewardpool.errors import InvalidSampleError
from rewardpool.rewards.episode import Episode, Message


def episodes_of(
    prompts: Sequence[Any],
    responses: Sequence[Any],
    *,
    ground_truth: Sequence[Any] | None = None,
    data_source: str | Sequence[str] = "",
    extra_info: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None,
) -> list[Episode]:
    """The rows of a batch; those of the same prompt are a group.

    Args:
        prompts: Texts, or lists of chat messages; shape (rows,).
        responses: The same for what the policy wrote.
        ground_truth: Right answers, shape (rows,).
        data_source: Where the prompts are from, or where each is.
        extra_info: What else is known, of all of them or of each.

    Raises:
        TypeError: A single text or conversation is where one for each row belongs.
        ValueError: There are not as many of one as of the others.
        InvalidSampleError: A response has no turns, or a turn has parts that are no text.
    """
    rows = len(responses)
    columns: dict[str, Any] = {
        "prompts": prompts,
        "responses": responses,
        "ground_truth": [None] * rows if ground_truth is None else ground_truth,
        "data_source": [data_source] * rows if isinstance(data_source, str) else data_source,
        "extra_info": [extra_info or {}] * rows
        if extra_info is None or isinstance(extra_info, Mapping)
        else extra_info,
    }
    for name, column in columns.items():
        is_single = isinstance(column, str) or (
            name in ("prompts", "responses") and any(isinstance(one, Mapping) for one in column)
        )
        if is_single:
            raise TypeError(f"{name} must be a list with one for each response, not a single one")
        if len(column) != rows:
            raise ValueError(f"{name} has {len(column)} for {rows} responses; give one for each")
    groups = groups_of(prompts)
    known = zip(groups, *columns.values(), strict=True)
    return [
        episode_of(
            prompt, response, ground_truth=truth, data_source=source, extra_info=extra, group=group, id=f"#{row}"
        )
        for row, (group, prompt, response, truth, source, extra) in enumerate(known)
    ]


def episode_of(prompt: Any, response: Any, **fields: Any) -> Episode:
    """A prompt and what the policy wrote as an episode, with further fields of it. Raises what `split` does."""
    return Episode(**split(prompt, response), **fields)


def groups_of(prompts: Sequence[Any]) -> list[int]:
    """The same number for rows of the same prompt. A prompt whose rows are in several processes is a group in each."""
    numbers: dict[str, int] = {}
    keys = [json.dumps(prompt, sort_keys=True, default=str) for prompt in prompts]
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def split(prompt: Any, completion: Any) -> dict[str, Any]:
    """`prompt` and `response` of an episode, both of which may be texts or chat messages.

    Of a completion with several turns (tools were called), the last assistant's turn is the response, and what was said
    before it belongs to the prompt. One that ends in a tool's answer, or in the call of a tool, has `turns`: there is
    no last word of the assistant's, and none is made up.

    Raises:
        InvalidSampleError: A completion has no turns, or a turn has parts that are no text.
    """
    if isinstance(completion, str):
        return {"prompt": prompt, "response": completion}
    if not completion:
        raise InvalidSampleError("(unnamed)", "the completion has no messages")
    turns: list[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    *before, last = completion
    if last.get("role") != "assistant":
        return {"prompt": turns, "response": "", "turns": list(completion)}
    if last.get("tool_calls"):
        return {"prompt": turns, "response": text_of(last.get("content")), "turns": list(completion)}
    return {"prompt": [*turns, *before], "response": text_of(last.get("content"))}


def text_of(content: Any) -> str:
    """The text of a message's content, which may be in blocks.

    Raises:
        InvalidSampleError: A block is no text.
    """
    if content is None:  # an assistant that only calls tools
        return ""
    if isinstance(content, str):
        return content
    if other := next((block for block in content if block.get("type") != "text"), None):
        raise InvalidSampleError("(unnamed)", f"a message has content of type {other.get('type')}; only text is rated")
    return "".join(block["text"] for block in content)

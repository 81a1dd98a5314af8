"""Prompts and responses as trainers and notebooks hold them, a row for each response, as episodes.

columns     prompts, responses, ground_truth, …       any iterable with one for each response
rows        {"prompt": …, "response": …, …}           mappings, pairs of a prompt and a response, or episodes

What is in another form is refused by name. Messages are read by `messages.py`.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rewardpool._mistakes import did_you_mean
from rewardpool._rewards.episode import Episode, Message, is_missing
from rewardpool._rewards.groups import groups_of
from rewardpool._rewards.messages import text_or_messages
from rewardpool.errors import InvalidSampleError
from rewardpool_runtime.json_values import described

# Bare text, or chat messages.
Text = str | Sequence[Message]
# Further fields of a row; a text is the JSON of a mapping.
Info = Mapping[str, Any] | str
# An episode, a prompt and the response to it, or a mapping with both and further fields of `Episode`.
Row = Episode | tuple[Text, Text] | Mapping[str, Any]

_EPISODE_FIELDS = frozenset(field.name for field in dataclasses.fields(Episode))
_RESPONSE_KEYS = ("response", "completion")
ROW_SHAPE = 'a row is {"prompt": …, "response": …}, a pair of the two, or an Episode'


def episodes_of(
    prompts: Any,
    responses: Any,
    *,
    ground_truth: Any = None,
    data_source: Any = "",
    extra_info: Any = None,
    groups: Any = None,
) -> list[Episode]:
    """Return the rows of a batch that is given in columns, each of shape (rows,).

    Rows that are equal in everything but the response are a group, unless `groups` names theirs.

    Raises:
        TypeError: A single text or conversation, or something without rows, is where one for each row belongs.
        ValueError: There are not as many of one as of the others.
        InvalidSampleError: A row is in no form that is accepted.
    """
    answers = _column("responses", responses)
    rows = len(answers)
    columns = {
        "prompts": _column("prompts", prompts),
        "responses": answers,
        "ground_truth": [None] * rows if ground_truth is None else _column("ground_truth", ground_truth),
        "data_source": [data_source] * rows if _is_one(data_source, str) else _column("data_source", data_source),
        "extra_info": [extra_info] * rows if _is_one(extra_info, str | Mapping) else _column("extra_info", extra_info),
    }
    for name, column in columns.items():
        if len(column) != rows:
            raise ValueError(f"{name} has {len(column)} for {rows} responses; give one for each")
    read = [text_or_messages(prompt, what="prompt", label=f"#{row}") for row, prompt in enumerate(columns["prompts"])]
    columns["prompts"] = read
    if groups is None:
        groups = groups_of(read, *(columns[name] for name in ("ground_truth", "data_source", "extra_info")))
    else:
        groups = _column("groups", groups)
    if len(groups) != rows:
        raise ValueError(f"groups has {len(groups)} for {rows} responses; give one for each")
    known = zip(groups, *columns.values(), strict=True)
    return [
        episode_of(
            prompt, response, ground_truth=truth, data_source=source, extra_info=extra, group=group, id=f"#{row}"
        )
        for row, (group, prompt, response, truth, source, extra) in enumerate(known)
    ]


def _is_one(value: Any, kinds: Any) -> bool:
    return value is None or isinstance(value, kinds)


def _column(name: str, column: Any) -> list[Any]:
    """Return the values of a column. Raises TypeError where it is none."""
    wanted = f"{name} must be a list with one for each response"
    if isinstance(column, str | bytes | Mapping):
        raise TypeError(f"{wanted}, not a single one ({described(column)})")
    if hasattr(column, "columns") or isinstance(column, set | frozenset) or not isinstance(column, Iterable):
        raise TypeError(f"{wanted}, not {described(column)}")
    values = list(column)
    first = next((one for one in values if isinstance(one, Mapping)), None)
    if name in ("prompts", "responses") and first is not None:
        if "prompt" in first:
            raise TypeError(f"{wanted}; it has rows, for which there is reward.rate(rows)")
        raise TypeError(f"{wanted}, not a single conversation: a conversation is itself a list of messages")
    return values


def rows_of(rows: Any) -> list[Any]:
    """Return the rows of a batch. Raises TypeError where it is a single one, or columns."""
    if isinstance(rows, Episode):
        raise TypeError(f"give a list of rows, not a single Episode; {ROW_SHAPE}")
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):
        raise TypeError(f'give frame.to_dict("records") for {described(rows)}; {ROW_SHAPE}')
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise TypeError(f"give a list of rows, not {described(rows)}; {ROW_SHAPE}")
    return list(rows)


def row_episode(row: Any, index: int) -> Episode:
    """Return a row as an episode, by its index in messages. Raises InvalidSampleError for a row in no accepted form."""
    label = f"#{index}"
    if isinstance(row, Episode):
        return row if row.id is not None else dataclasses.replace(row, id=label)
    if hasattr(row, "to_dict") and hasattr(row, "keys"):  # of a DataFrame
        row = row.to_dict()
    if isinstance(row, Mapping):
        return _mapping_episode(row, label)
    if not isinstance(row, tuple | list):
        raise InvalidSampleError(label, f"it is {described(row)}; {ROW_SHAPE}")
    if len(row) != 2:
        raise InvalidSampleError(label, f"it is {described(row)} of {len(row)}; {ROW_SHAPE}")
    prompt, response = row
    return episode_of(prompt, response, id=label)


def _mapping_episode(row: Mapping[str, Any], label: str) -> Episode:
    fields = dict(row)
    given = [key for key in _RESPONSE_KEYS if key in fields]
    known = _EPISODE_FIELDS | set(_RESPONSE_KEYS)
    unknown = sorted(str(key) for key in fields if key not in known)
    if "prompt" not in fields or len(given) != 1 or unknown:
        problems = [
            *(["it has no prompt"] if "prompt" not in fields else []),
            *([f"it has {' and '.join(given) or 'neither response nor completion'}"] if len(given) != 1 else []),
            *([f"it has the unknown keys {', '.join(unknown)}{did_you_mean(unknown[0], known)}"] if unknown else []),
        ]
        raise InvalidSampleError(
            label, f"{'; '.join(problems)}; {ROW_SHAPE}; further keys: {', '.join(sorted(known - _ROW_KEYS))}"
        )
    prompt, response = fields.pop("prompt"), fields.pop(given[0])
    said = {key: value for key, value in fields.items() if not is_missing(value)}  # tables have NaN where nothing is
    return episode_of(prompt, response, **{"id": label, **said})


_ROW_KEYS = frozenset({"prompt", *_RESPONSE_KEYS})


def episode_of(prompt: Any, response: Any, **fields: Any) -> Episode:
    """Return a prompt and what the policy wrote as an episode, with further fields of it; raises what `split` does."""
    label = fields.get("id") or "(unnamed)"
    return Episode(**{**split(prompt, response, label=label), **fields})


def split(prompt: Any, completion: Any, *, label: str = "(unnamed)") -> dict[str, Any]:
    """Return `prompt` and `response` of an episode, both of which may be texts or chat messages.

    Of a completion with several turns (tools were called), the last assistant's turn is the response, and what was said
    before it belongs to the prompt. One that ends in a tool's answer, or in the call of a tool, has `turns`: there is
    no last word of the assistant's, and none is made up.

    Raises:
        InvalidSampleError: Either is in another form, or a turn has parts that are not text.
    """
    completion = text_or_messages(completion, what="response", label=label)
    if isinstance(completion, str):
        return {"prompt": prompt, "response": completion}
    prompt = text_or_messages(prompt, what="prompt", label=label)
    turns: list[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    *before, last = completion
    if last.get("role") != "assistant":
        return {"prompt": turns, "response": "", "turns": completion}
    said = text_of(last.get("content"), label=label)
    if last.get("tool_calls"):
        return {"prompt": turns, "response": said, "turns": completion}
    return {"prompt": [*turns, *before], "response": said}


def text_of(content: Any, *, label: str = "(unnamed)") -> str:
    """Return the text of a message's content, or of its parts. Raises InvalidSampleError for a part that is no text."""
    if content is None:  # an assistant that only calls tools
        return ""
    if isinstance(content, str):
        return content
    if other := next((block for block in content if block.get("type") != "text"), None):
        raise InvalidSampleError(label, f"a message has content of type {other.get('type')}; only text is rated")
    return "".join(block["text"] for block in content)

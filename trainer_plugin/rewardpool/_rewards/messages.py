"""The schema of chat messages: what every prompt and response is read by, wherever it comes from.

{"role": "user", "content": "…"}                                      a text
{"role": "user", "content": [{"type": "text", "text": "…"}, …]}       parts, of which only texts are read by models
{"role": "assistant", "content": None, "tool_calls": […]}             a call of tools

A message in another form is refused by name: a chat template would write what it does not know as nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rewardpool._mistakes import did_you_mean
from rewardpool.errors import InvalidSampleError
from rewardpool_runtime.json_values import described

# Known to chat templates; `ipython` and `observation` are tools' in some.
ROLES = ("assistant", "developer", "function", "ipython", "observation", "system", "tool", "user")
# An assistant's message may have one of these and no content.
_SAID_WITHOUT_CONTENT = (
    "audio",
    "function_call",
    "reasoning",
    "reasoning_content",
    "refusal",
    "thinking",
    "tool_calls",
)
KEYS = frozenset({"role", "content", "name", "tool_call_id", *_SAID_WITHOUT_CONTENT})
SHAPE = 'a message is {"role": "user", "content": "…"}'
_SHARE_GPT = (
    'convert ShareGPT\'s with {"role": {"human": "user", "gpt": "assistant"}.get(turn["from"], turn["from"]), '
    '"content": turn["value"]}'
)


def text_or_messages(value: Any, *, what: str, label: str) -> str | list[Mapping[str, Any]]:
    """Return a text, or a list of messages, as it is; an array of messages as a list.

    Raises:
        InvalidSampleError: It is neither; the message has the turn, what was found, and the form that is accepted.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        raise InvalidSampleError(label, f"{what} is a single mapping; give a text, or a list of messages; {SHAPE}")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes) or not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidSampleError(label, f"{what} is {described(value)}; give a text, or a list of messages; {SHAPE}")
    if not value:
        raise InvalidSampleError(label, f"{what} has no messages; {SHAPE}")
    return [_message(one, where=f"{what}, turn {turn}", label=label) for turn, one in enumerate(value, start=1)]


def _message(message: Any, *, where: str, label: str) -> Mapping[str, Any]:
    if (problem := _problem(message)) is not None:
        raise InvalidSampleError(label, f"{where}: {problem}")
    if not any(hasattr(value, "tolist") for value in message.values()):
        return message  # type: ignore[no-any-return]
    return {key: value.tolist() if hasattr(value, "tolist") else value for key, value in message.items()}


def _problem(message: Any) -> str | None:
    """Return what is wrong with a message; None where it is one."""
    if not isinstance(message, Mapping):
        hint = "; give message.model_dump()" if hasattr(message, "model_dump") else ""
        return f"it is {described(message)}, not a mapping; {SHAPE}{hint}"
    given = {str(key) for key, value in message.items() if value is not None}  # tables have all keys in all rows
    if not {"role", "content"} & given and {"from", "value"} & given:
        return f"it has the keys {_listed(given)}; {SHAPE}; {_SHARE_GPT}"
    if "role" not in given:
        near = next((key for key in sorted(given - KEYS) if did_you_mean(key.lower(), ["role"])), None)
        found = f"has {near} in place of a role" if near else f"has no role, only {_listed(given) or 'no keys'}"
        return f"it {found}; {SHAPE}"
    if unknown := given - KEYS:
        renamed = "; rename text to content" if "text" in unknown and "content" not in given else ""
        hint = renamed or did_you_mean(min(unknown), KEYS)
        return f"it has the unknown keys {_listed(unknown)}{hint}; known are {_listed(KEYS)}; {SHAPE}"
    role = message["role"]
    if role not in ROLES:
        return f"it has the role {role!r:.60}{did_you_mean(str(role).lower(), ROLES)}; roles are {_listed(ROLES)}"
    if (problem := _calls_problem(message.get("tool_calls"))) is not None:
        return problem
    return _content_problem(message.get("content"), is_optional=role == "assistant" and _says_more(message))


def _says_more(message: Mapping[str, Any]) -> bool:
    return any(message.get(key) is not None for key in _SAID_WITHOUT_CONTENT)


def _calls_problem(calls: Any) -> str | None:
    """Return what is wrong with the calls of tools; None where they are a list of mappings, or there are none."""
    if hasattr(calls, "tolist"):
        calls = calls.tolist()
    if calls is None:
        return None
    if not isinstance(calls, list | tuple):
        return f"its tool_calls is {described(calls)}; give a list of calls such as {_CALL}"
    for number, call in enumerate(calls, start=1):
        found = call.get("function") or {} if isinstance(call, Mapping) else call
        if not isinstance(found, Mapping):
            return f"call {number} of its tool_calls has {described(found)}; a call is {_CALL}"
    return None


def _content_problem(content: Any, *, is_optional: bool) -> str | None:
    if isinstance(content, str) or (content is None and is_optional):
        return None
    if hasattr(content, "tolist"):
        content = content.tolist()
    if not isinstance(content, list | tuple):
        return f"its content is {described(content)}; give a text, or a list of parts such as {_PART}"
    for number, part in enumerate(content, start=1):
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            found = f"has the keys {_listed(part)}" if isinstance(part, Mapping) else f"is {described(part)}"
            return f"part {number} of its content {found}; a part is {_PART}, or has another type"
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            return f"part {number} of its content has type text, and its text is {described(part.get('text'))}"
    return None


_CALL = '{"type": "function", "function": {"name": "…", "arguments": {…}}}'
_PART = '{"type": "text", "text": "…"}'


def _listed(words: Any) -> str:
    return ", ".join(sorted(map(str, words)))

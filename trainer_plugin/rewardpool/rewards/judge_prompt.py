"""What a judge is asked, and with which values the prompt's fields are filled."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rewardpool.errors import InvalidSampleError
from rewardpool.rewards.episode import Episode
from rewardpool.rewards.parts import JudgeConfig
from rewardpool.rewards.scorer import refuse_media
from rewardpool.rewards.template import extra_name
from rewardpool.sample import checked_text

POINTWISE = """\
Rate the response to the last message of the conversation.

[Conversation]
{conversation}

[Response]
{response}

Judge whether it does what was asked, whether what it says is right, and whether it is clear. Neither its length nor its
manner counts by itself.

{answer_format}"""

PAIRWISE = """\
Two responses to the last message of the conversation are given. Say which one is better.

[Conversation]
{conversation}

[Response A]
{response_a}

[Response B]
{response_b}

Judge whether they do what was asked, whether what they say is right, and whether they are clear. Neither their order,
their length nor their manner counts by itself. If neither is better, it is a tie.

{answer_format}"""


RUBRIC = """\
Rate the response to the last message of the conversation.

[Conversation]
{conversation}

[Response]
{response}

Judge it by each of these criteria, and by nothing else:

{rubric}

{answer_format}"""

LISTWISE = """\
Rate each of the responses to the last message of the conversation.

[Conversation]
{conversation}

{responses}

Judge whether they do what was asked, whether what they say is right, and whether they are clear. Neither their order,
their length nor their manner counts by itself.

{answer_format}"""


class JudgePrompt:
    """Makes the messages for a judge."""

    def __init__(self, config: JudgeConfig) -> None:
        plain = RUBRIC if config.rubric else POINTWISE
        default = {"pointwise": plain, "pairwise": PAIRWISE, "listwise": LISTWISE}[config.mode]
        self._template = config.template(default if config.prompt is None else config.prompt)
        self._system = config.system
        self._fixed = {
            "low": f"{config.range[0]:g}",
            "high": f"{config.range[1]:g}",
            "rubric": "\n".join(f"- {line.name}: {line.says}" for line in config.rubric),
        }

    def messages(self, episode: Episode, responses: Mapping[str, str], *, how: str) -> list[dict[str, Any]]:
        """The question about an episode.

        Args:
            episode: Its prompt and what is known about it.
            responses: Values of the fields that hold responses.
            how: To answer, in words.

        Raises:
            InvalidSampleError: The episode lacks what a field of the prompt stands for.
            ConfigError: The prompt names the conversation, and that has more than text.
        """

        def value_of(field: str) -> str:
            if field == "answer_format":
                return how
            if field in self._fixed:
                return self._fixed[field]
            return responses[field] if field in responses else _value(episode, field)

        user = {"role": "user", "content": checked_text(self._template.render(value_of), episode.label)}
        return [user] if self._system is None else [{"role": "system", "content": self._system}, user]


def reference_of(episode: Episode) -> str:
    """The ground truth as a text.

    Raises:
        InvalidSampleError: There is none.
    """
    if episode.ground_truth is None:
        raise InvalidSampleError(episode.label, "has no ground_truth, which the judge is to be shown")
    return as_text(episode.ground_truth)


def _value(episode: Episode, field: str) -> str:
    if (name := extra_name(field)) is not None:
        if name not in episode.extra_info:
            raise InvalidSampleError(episode.label, f"its extra_info has no {name!r}, which the judge's prompt names")
        return as_text(episode.extra_info[name])
    if field in ("question", "conversation"):
        refuse_media(episode)
    match field:
        case "reference":
            return reference_of(episode)
        case "data_source":
            return episode.data_source
        case "question":
            asked = [message for message in episode.prompt_messages() if message.get("role") == "user"]
            return as_text(asked[-1].get("content", "")) if asked else ""
        case _:
            return written(episode.prompt_messages())


def response_of(episode: Episode) -> str:
    """The response as a judge is shown it: one of several turns with who says what."""
    return episode.response if episode.turns is None else written(episode.response_messages())


def written(turns: Sequence[Mapping[str, Any]]) -> str:
    """Chat messages as one text, the calls of tools included."""
    return "\n\n".join(
        f"{turn.get('role', '')}: "
        + "\n".join(filter(None, [as_text(turn.get("content", "")), *map(as_text, turn.get("tool_calls") or ())]))
        for turn in turns
    )


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON; what JSON does not have, as Python writes it."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)

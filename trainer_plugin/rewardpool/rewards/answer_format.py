"""How a judge is made to answer so that its answer can be read: what is asked of the engine, and how it is read back.

Everything goes by `response_format` with a JSON schema. It is what vLLM and SGLang share, and all that sglang-router
lets through: vLLM's `structured_outputs` (choice, regex, grammar) is dropped there without a word, and vLLM ignores
SGLang's `regex`. So a choice is asked for as an `enum`, and a regex as the `pattern` of a JSON string.
"""

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from rewardpool.rewards.scale import Scale, Unreadable

T = TypeVar("T")
Form = Literal["json", "choice", "regex", "text", "probabilities"]

ALTERNATIVES = 20
"""Tokens whose probabilities an engine tells, at most: the most that vLLM gives without a flag."""
LEAST_SHARE = 0.5
"""Of the probability, that must fall on answers: less, and the judge was about to write something else."""

MAX_OBJECTS = 200
"""Braces, from the end, at which a JSON object is looked for."""
_NAMED_GROUP = re.compile(r"\(\?P<\w+>")


class AnswerFormat(Generic[T]):
    """One way to answer.

    Args:
        form: `json`: an object with reasoning and answer. `choice`: nothing but one of the answers. `regex`: a text
            that `pattern` matches. `text`: free, with the answer in its last line. `probabilities`: nothing is written;
            the probabilities of the answers as the first token count.
        scale: The answers that there are.
        key: What the answer is called, such as `score`.
        reasoning: Whether a JSON object begins with the reasons.
        reasoning_characters: Longest reasons; None for any length.
        pattern: For `regex`; its group named as `key`, else its first group, else all of it is the answer.

    Raises:
        ValueError: The scale has too many answers for `choice` or `probabilities`, one of them begins another where
            tokens decide, or `pattern` is missing or no regular expression.
    """

    def __init__(
        self,
        form: Form,
        scale: Scale[T],
        *,
        key: str,
        reasoning: bool = True,
        reasoning_characters: int | None = None,
        pattern: str | None = None,
    ) -> None:
        if (pattern is None) == (form == "regex"):
            raise ValueError("pattern goes with output regex, and only with that")
        try:
            self._pattern = re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"pattern is no regular expression: {error}") from None
        if form == "probabilities":
            _check_tokens(scale.labels())
        self._form = form
        self._scale = scale
        self._key = key
        self._reasoning = reasoning and form == "json"
        self._reasoning_characters = reasoning_characters
        self._schema = self._make_schema()

    @property
    def by_probabilities(self) -> bool:
        """Whether nothing is written, and `expected` reads the answer instead of `read`."""
        return self._form == "probabilities"

    @property
    def request(self) -> dict[str, Any]:
        """The fields of a chat completion request that hold the engine to it."""
        if self.by_probabilities:
            return {"max_tokens": 1, "temperature": 0.0, "logprobs": True, "top_logprobs": ALTERNATIVES}
        if self._schema is None:
            return {}
        wanted = {"name": self._key, "schema": self._schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": wanted}}

    @property
    def instruction(self) -> str:
        """The same in words, for the prompt: a model that knows what is wanted reasons better than one that is bent."""
        words = self._scale.words()
        match self._form:
            case "json":
                reasons = '"reasoning": your reasons in a few sentences, ' if self._reasoning else ""
                return f'Answer with a JSON object and nothing else: {{{reasons}"{self._key}": {words}}}.'
            case "choice":
                return f"Answer with {words}, in double quotes, and nothing else."
            case "probabilities":
                bare = words.replace('"', "")
                return f"Answer with {bare} and nothing else."
            case "regex":
                return f"Answer with a JSON string that matches {self._pattern.pattern} and nothing else."
            case _:
                return f"Give your reasons. Then end with a line `{self._key.capitalize()}: X`, where X is {words}."

    def expected(self, alternatives: Sequence[tuple[str, float]]) -> tuple[float, dict[str, float]]:
        """The mean of the answers by their probabilities, and those by the token.

        Args:
            alternatives: The most probable first tokens, and the logarithms of their probabilities.

        Raises:
            Unreadable: Most of the probability is on tokens that are no answers.
        """
        shares: dict[str, float] = {}
        total = 0.0
        for token, logarithm in alternatives:
            try:
                score = self._scale.read(token)
            except Unreadable:
                continue
            if not isinstance(score, float | int):
                raise TypeError("probabilities are of answers that are one number each")
            shares[token] = math.exp(logarithm)
            total += shares[token] * score
        known = sum(shares.values())
        if not known >= LEAST_SHARE:
            likely = ", ".join(repr(token) for token, _ in sorted(alternatives, key=lambda each: -each[1])[:3])
            raise Unreadable(
                f"answers have {known:.0%} of the probability of its first token; likely ones are {likely}"
            )
        return total / known, shares

    def read(self, text: str, *, is_cut_off: bool = False) -> T:
        """The score that the judge gives.

        Args:
            text: What it wrote.
            is_cut_off: Whether its length ended it. What it says by then may be on the way to its answer, so the answer
                counts only where its form shows that it is complete.

        Raises:
            Unreadable: The text does not say it, or says what is not on the scale.
        """
        said = _without_thoughts(text)
        if is_cut_off and not self._is_complete(said):
            raise Unreadable("it is cut off before its answer is complete; raise max_tokens")
        match self._form:
            case "json":
                return self._read_json(said)
            case "choice":
                return self._scale.read(_as_string(said))
            case "regex":
                return self._read_pattern(_as_string(said))
            case _:
                return self._scale.find(_tagged(said))

    def _is_complete(self, said: str) -> bool:
        """Whether nothing could follow: its JSON has ended. Free text can always go on."""
        if self._form == "text":
            return False
        try:
            complete = json.loads(_without_fence(said))
        except (ValueError, RecursionError):
            return False
        return isinstance(complete, dict if self._form == "json" else str)

    def _make_schema(self) -> Mapping[str, Any] | None:
        match self._form:
            case "json":
                longest = self._reasoning_characters
                reasons = {"type": "string"} if longest is None else {"type": "string", "maxLength": longest}
                properties = {"reasoning": reasons} if self._reasoning else {}
                properties[self._key] = self._scale.schema()
                return {
                    "type": "object",
                    "properties": properties,
                    "required": list(properties),
                    "additionalProperties": False,
                }
            case "choice":
                return {"type": "string", "enum": self._scale.labels()}
            case "regex":
                # Engines know no named groups.
                return {"type": "string", "pattern": f"^(?:{_NAMED_GROUP.sub('(', self._pattern.pattern)})$"}
            case _:
                return None

    def _read_json(self, text: str) -> T:
        answers = [found[self._key] for found in _objects(text) if self._key in found]
        if answers:
            return self._scale.read(answers[-1])
        if "{" in text:
            # Most likely cut off; a number in its reasoning is not the answer.
            raise Unreadable(f"it has no complete JSON object with {self._key!r}")
        return self._scale.find(_tagged(text))

    def _read_pattern(self, text: str) -> T:
        found = self._pattern.fullmatch(text.strip())
        if found is None:
            raise Unreadable(f"it does not match {self._pattern.pattern}")
        groups = found.groupdict()
        value = groups.get(self._key) if self._key in groups else found[1] if found.re.groups else found[0]
        return self._scale.read(value)


def _check_tokens(labels: Sequence[str]) -> None:
    """Refuse answers that their first tokens may not tell apart. Raises ValueError."""
    if len(labels) > ALTERNATIVES:
        raise ValueError(f"output probabilities takes at most {ALTERNATIVES} answers, not {len(labels)}")
    folded = sorted(label.casefold() for label in labels)
    for label, following in itertools.pairwise(folded):
        if following.startswith(label):
            raise ValueError(f"output probabilities goes by the first token, and {label!r} begins {following!r}")


def _without_thoughts(text: str) -> str:
    """What follows a reasoning model's thoughts; some chat templates open them in the prompt already."""
    _, closed, after = text.rpartition("</think>")
    said = after if closed else text
    if "<think>" in said:
        raise Unreadable("it ends within its thoughts; raise max_tokens")
    return said.strip()


def _tagged(text: str) -> str:
    """The text from its last `<answer>` on: what a judge says before it is not its answer, whatever is in the tag."""
    _, tag, after = text.rpartition("<answer>")
    return tag + after


def _without_fence(text: str) -> str:
    return text.removeprefix("```json").strip("`").strip()


def _as_string(text: str) -> str:
    """The JSON string that the text is, in a code fence or not; else the text."""
    bare = _without_fence(text)
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        return bare
    return value if isinstance(value, str) else bare


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, whatever is around them."""
    decoder = json.JSONDecoder()
    end = 0
    for brace in [match.start() for match in re.finditer("{", text)][-MAX_OBJECTS:]:
        if brace < end:
            continue
        try:
            value, end = decoder.raw_decode(text, brace)
        except (ValueError, RecursionError):
            continue
        yield value

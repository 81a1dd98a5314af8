"""The form of a judge's answer: what is asked of the engine, and how the answer is read back.

The declared form is parsed first, and as a whole: one JSON value, or a verdict at the end of a text. An answer in any
other form is `Unreadable`, and so are two different verdicts. A verdict is never searched for: what a judge quotes from
a response must not become one.

Engines enforce a form by `response_format` with a JSON schema. It is what vLLM and SGLang share, and all that
sglang-router lets through: it drops vLLM's `structured_outputs` (choice, regex, grammar) without an error, and vLLM
ignores SGLang's `regex`. So a choice is asked for as an `enum`.
"""

import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Literal, NoReturn, TypeVar

from rewardpool._client.answer import Judgement
from rewardpool._rewards.answers.reasoning import Reasoning
from rewardpool._rewards.answers.scale import Scale, Unreadable

T = TypeVar("T")
Output = Literal["json", "choice", "probabilities", "text"]

# Stands for the answer in a form.
ANSWER_FIELD = "{answer}"
# Tokens whose probabilities an engine returns: the most that vLLM gives without a flag.
ALTERNATIVES = 20
# Share of the probability that must fall on answers: with less, the judge was about to write something else.
LEAST_SHARE = 0.5

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(?P<inside>.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
# Bounded, or a judge that goes on with blanks would be read in quadratic time.
_MARKUP = r"[*_`]{0,8}"
_LINE_START = rf"^[ \t#]{{0,16}}{_MARKUP}"
_LINE_END = rf"[ \t]{{0,16}}{_MARKUP}[ \t]{{0,256}}\.?[ \t]{{0,16}}$"
_AFTER_THE_VERDICT = re.compile(r"(?:[\s*_`.$]|\\[\])])*")
_DECODER = json.JSONDecoder()
# Characters of a verdict in JSON, such as the scores of a group; no scale has a longer one.
LONGEST_VERDICT = 4_096
_CUT_OFF = "it is cut off before its answer is complete; raise max_tokens"


class AnswerFormat(Generic[T]):
    """One way to answer.

    Args:
        output: `json`: an object with reasons and the answer. `choice`: one of the answers and nothing else. `text`:
            free, with the answer at its end in the `form`. `probabilities`: nothing is written; the probabilities of
            the answers as the first token count.
        key: Names the answer, such as `score`.
        reasoning_characters: Longest reasons of a JSON object; None for any length, 0 for no reasons.
        form: For `text`: what the answer stands in, such as `[[{answer}]]`.
        reasoning: How the judge marks its thoughts where the engine does not separate them; None for known tags.

    Raises:
        ValueError: The scale has too many answers for `choice` or `probabilities`, one of them begins another where
            tokens decide, or the form is not one.
    """

    def __init__(
        self,
        output: Output,
        scale: Scale[T],
        *,
        key: str,
        reasoning_characters: int | None = None,
        form: str | None = None,
        reasoning: Reasoning | None = None,
    ) -> None:
        if output == "probabilities":
            _check_tokens(scale.labels())
        self._output = output
        self._scale = scale
        self._key = key
        self._reasoning_characters = reasoning_characters
        self._form = VerdictForm(form or f"{key.capitalize()}: {ANSWER_FIELD}")
        self._reasoning = reasoning or Reasoning()
        self._next_key = re.compile(rf'"\s*,\s*"{re.escape(key)}"\s*:\s*')
        self._schema = self._make_schema()

    @property
    def by_probabilities(self) -> bool:
        """True if nothing is written, and `expected` reads the answer instead of `read`."""
        return self._output == "probabilities"

    @property
    def request(self) -> dict[str, Any]:
        """The fields of a chat completion request by which the engine enforces the form."""
        if self.by_probabilities:
            return {"max_tokens": 1, "temperature": 0.0, "logprobs": True, "top_logprobs": ALTERNATIVES}
        if self._schema is None:
            return {}
        wanted = {"name": self._key, "schema": self._schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": wanted}}

    @property
    def instruction(self) -> str:
        """The form in words, for the prompt: a model that knows the form reasons better than one forced into it."""
        words = self._scale.words()
        match self._output:
            case "json":
                reasons = '"reasoning": your reasons in a few sentences, ' if self._reasoning_characters != 0 else ""
                return f'Answer with a JSON object and nothing else: {{{reasons}"{self._key}": {words}}}.'
            case "choice":
                return f"Answer with {words}, in double quotes, and nothing else."
            case "probabilities":
                bare = words.replace('"', "")
                return f"Answer with {bare} and nothing else."
            case _:
                return f"Give your reasons. Then end with a line `{self._form.shown}`, where X is {words}."

    def expected(self, alternatives: Sequence[tuple[str, float]]) -> tuple[float, dict[str, float]]:
        """Return the mean of the answers by their probabilities, and the probability of each token that is one.

        The alternatives are the most probable first tokens, with the logarithms of their probabilities. Raises
        Unreadable where most of the probability is on tokens that are not answers.
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

    def read(self, said: Judgement, *, responses: Iterable[str] = ()) -> T:
        """Return the score that the judge gives.

        Args:
            said: What it wrote. Where its length ended it, it counts only if its JSON is complete.
            responses: What the judge was shown of the policy's. A verdict that stands in one of them in the same form
                may be a quote, and is unreadable: in free text as it is, in JSON behind the end of a text.

        Raises:
            Unreadable: It is not in the declared form, or is off the scale.
        """
        if not said.strip() and not said.is_cut_off:
            raise Unreadable("it wrote nothing but its thoughts" if said.has_reasoning else "it wrote nothing")
        if self._output == "text":
            if said.is_cut_off:
                raise Unreadable(_CUT_OFF)
            return self._form.read(self._without_reasoning(said), self._scale, responses)
        value = self._json_value(said)
        if self._output == "choice":
            return self._scale.read(value)
        if not isinstance(value, dict) or self._key not in value:
            raise Unreadable(f"it is not a JSON object with {self._key!r}")
        verdict = self._scale.read(value[self._key])
        if any(verdict in self._forged(response) for response in responses):
            raise Unreadable(f"a response ends a JSON text and goes on with this {self._key!r}, so it may be a quote")
        return verdict

    def _forged(self, response: str) -> list[T]:
        """Verdicts that a response writes behind the end of a JSON text: quoted bare, they would end the reasons."""
        verdicts = []
        for found in self._next_key.finditer(response):
            try:
                # A part of it alone: a policy could write thousands of keys in front of one endless text.
                start = response[found.end() : found.end() + LONGEST_VERDICT]
                verdicts.append(self._scale.read(_DECODER.raw_decode(start)[0]))
            except (ValueError, RecursionError, Unreadable):
                continue
        return verdicts

    def _json_value(self, said: Judgement) -> Any:
        """The JSON that the whole answer is, or all of it but its thoughts; of a choice also the bare word."""
        answer = said.strip()
        try:
            value = _whole_json(answer)
        except ValueError:
            answer = self._without_reasoning(said)
            try:
                value = _whole_json(answer)
            except ValueError as error:
                if self._output == "json" and not said.is_cut_off:
                    raise Unreadable(f"it is not one JSON object as a whole ({error})") from None
                value = None
        if isinstance(value, dict if self._output == "json" else str):
            return value
        if said.is_cut_off:
            raise Unreadable(_CUT_OFF)
        return answer if self._output == "choice" else value

    def _without_reasoning(self, said: Judgement) -> str:
        """Return the answer without the thoughts that it begins with. Raises Unreadable."""
        if said.has_reasoning:
            return said.strip()
        answer = self._reasoning.split(said).answer
        if answer is None:
            raise Unreadable("it ends within its thoughts; raise max_tokens")
        return answer.strip()

    def _make_schema(self) -> dict[str, Any] | None:
        match self._output:
            case "json":
                longest = self._reasoning_characters
                reasons = {"type": "string"} if longest is None else {"type": "string", "maxLength": longest}
                properties = {} if longest == 0 else {"reasoning": reasons}
                properties[self._key] = self._scale.schema()
                return {
                    "type": "object",
                    "properties": properties,
                    "required": list(properties),
                    "additionalProperties": False,
                }
            case "choice":
                return {"type": "string", "enum": self._scale.labels()}
            case _:
                return None


class VerdictForm:
    """The form of a verdict at the end of a free text, such as `Score: {answer}` or `[[{answer}]]`.

    One that begins with a word takes a line of its own. Raises ValueError where it does not have `{answer}` once, with
    text before it.
    """

    def __init__(self, form: str) -> None:
        before, field, after = (part.strip() for part in form.partition(ANSWER_FIELD))
        if not field or not before or ANSWER_FIELD in after or "\n" in form:
            raise ValueError(f"form must be one line with {ANSWER_FIELD} once and text before it, not {form!r}")
        self.shown = form.replace(ANSWER_FIELD, "X")
        has_own_line = re.match(r"\w", before) is not None
        opening = _literal(before.removesuffix(":")) + (rf"{_MARKUP}:{_MARKUP}" if before.endswith(":") else "")
        # The lookahead finds verdicts inside of one another, too.
        blank = r"\s{0,16}" if after else r"[ \t]{0,16}"
        closing = blank + _literal(after) if after else _LINE_END
        start = _LINE_START if has_own_line else ""
        whole = rf"{start}{opening}{blank}(?P<answer>[^\n]{{1,200}}?){closing}"
        self._verdicts = re.compile(f"(?=(?P<whole>{whole}))", re.IGNORECASE | re.MULTILINE)

    def read(self, text: str, scale: Scale[T], responses: Iterable[str]) -> T:
        """Return the verdict at the end of a text. Raises Unreadable; see `AnswerFormat.read`."""
        found = list(self._verdicts.finditer(text))
        if not found or _AFTER_THE_VERDICT.fullmatch(text, found[-1].end("whole")) is None:
            raise Unreadable(f"it does not end with `{self.shown}`")
        verdict = scale.read(found[-1]["answer"])
        if any(other != verdict for other in self._readable(text, scale)):
            raise Unreadable("it gives two different verdicts")
        if any(verdict in self._readable(response, scale) for response in responses):
            raise Unreadable(
                f"a response writes `{found[-1]['whole'].strip()}` too, so it may be a quote; use output json"
            )
        return verdict

    def _readable(self, text: str, scale: Scale[T]) -> list[T]:
        verdicts = []
        for found in self._verdicts.finditer(text):
            try:
                verdicts.append(scale.read(found["answer"]))
            except Unreadable:
                continue
        return verdicts


def _literal(text: str) -> str:
    return r"\s{1,16}".join(map(re.escape, text.split()))


def _check_tokens(labels: Sequence[str]) -> None:
    """Refuse answers that their first tokens may not distinguish. Raises ValueError."""
    if len(labels) > ALTERNATIVES:
        raise ValueError(f"output probabilities takes at most {ALTERNATIVES} answers, not {len(labels)}")
    folded = sorted(label.casefold() for label in labels)
    for label, following in itertools.pairwise(folded):
        if following.startswith(label):
            raise ValueError(f"output probabilities goes by the first token, and {label!r} begins {following!r}")


def _whole_json(text: str) -> Any:
    """The JSON value that a text is as a whole, in a code fence or not.

    Raises:
        ValueError: It is something else, has one key twice with different values, or a number that JSON does not have.
    """
    fenced = _FENCED.fullmatch(text)
    try:
        return json.loads(fenced["inside"] if fenced else text, object_pairs_hook=_object, parse_constant=_refused)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise ValueError(f"{key!r} has two different values")
    return found


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")

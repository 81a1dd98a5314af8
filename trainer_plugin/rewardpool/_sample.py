"""Samples and their outcomes: a `Sample` goes in, a `Scored` or an `Unscored` comes out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewardpool.errors import InvalidSampleError, SampleError
from rewardpool_runtime.json_values import NotJsonError, described, json_value


@dataclass(frozen=True, kw_only=True)
class FunctionSample:
    """The four arguments of a user's `compute_score`, as JSON has them; docs/rewards.md says what becomes of others."""

    data_source: str
    solution_str: str
    ground_truth: Any
    extra_info: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self, label: str) -> str:
        """Return the arguments as one JSON text: what a pool is sent, and what a function in the job is called with.

        Raises:
            InvalidSampleError: A value cannot be represented without a loss; the message names it.
        """
        for name, given in (("data_source", self.data_source), ("solution_str", self.solution_str)):
            if not isinstance(given, str):
                raise InvalidSampleError(label, f"{name} must be a text, not {described(given)}")
        if not isinstance(self.extra_info, Mapping):
            raise InvalidSampleError(label, f"extra_info must be a mapping, not {described(self.extra_info)}")
        try:
            return _strict_json(
                {
                    "data_source": json_value(self.data_source, "data_source"),
                    "solution_str": json_value(self.solution_str, "solution_str"),
                    "ground_truth": json_value(self.ground_truth, "ground_truth"),
                    "extra_info": json_value(self.extra_info, "extra_info"),
                }
            )
        except NotJsonError as error:
            raise InvalidSampleError(label, str(error)) from None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample to score: exactly one of `text`, `token_ids` and `function`.

    Attributes:
        text: Without special tokens: the server adds those of its tokenizer. A conversation in a chat template that
            writes a BOS would have two of them; send its token ids, or have `rewards.open_reward` write it.
        token_ids: The whole conversation in the reward model's chat template and tokens, shape (tokens,). Nothing is
            added to them.
        function: The arguments of a reward function.
        id: A name for messages; the sample's index stands in where there is none.
        tokenizer: Digest of the tokenizer that wrote `token_ids`, as `Scored.tokenizer` has it. An answer of a model
            with another one is a `WrongTokenizerError`. None accepts any.
        revision: The one revision of the pool's workers that may score it, as `Scored.revision` has it. Where that one
            serves no more, the sample has a `RevisionGoneError`. None accepts any.

    Raises:
        InvalidSampleError: None or several of the three are set, or `token_ids` is empty.
    """

    text: str | None = None
    token_ids: Sequence[int] | None = None
    function: FunctionSample | None = None
    id: str | None = None
    tokenizer: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if (self.text is not None) + (self.token_ids is not None) + (self.function is not None) != 1:
            given = [name for name in ("text", "token_ids", "function") if getattr(self, name) is not None]
            problem = f"set exactly one of text, token_ids and function, not {' and '.join(given) or 'none'}"
            raise InvalidSampleError(self.id or "(unnamed)", problem)
        if self.token_ids is not None and len(self.token_ids) == 0:
            raise InvalidSampleError(self.id or "(unnamed)", "token_ids is empty")

    def to_input(self, label: str) -> str | list[int]:
        """The `input` of an embeddings request.

        Raises:
            InvalidSampleError: A text has half of a character in it, or a value of a function sample cannot be
                represented in JSON.
        """
        if self.text is not None:
            return checked_text(self.text, label)
        if self.token_ids is not None:
            return [int(token) for token in self.token_ids]
        if self.function is None:
            raise InvalidSampleError(label, "has nothing to score")
        # One JSON string: the router drops request fields that it does not know.
        return self.function.to_json(label)


def checked_text(text: str, label: str) -> str:
    """Return the text as it is. Raises InvalidSampleError for a lone surrogate, which cannot be sent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSampleError(
            label, f"has {text[error.start]!r} in it, a lone surrogate, which is not a character"
        ) from None
    return text


# One encoder for all samples: `json.dumps` makes one for each call that has arguments.
_strict_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A sample's score.

    Attributes:
        value: The raw score, finite; no activation applied.
        attempts: Requests that were sent for it.
        seconds: From the first request to the answer.
        penalised_for: Reason for the missing score, where `value` is the penalty that `on_failure` names for `policy`.
        steps: Of a pool whose `spec.model.head.type` is TokenLevel: the values of the text's steps, in their order, of
            which `value` is the aggregate. None for every other pool.
        info: What a pool's function returned beside its score, JSON values.
        revision: Revision of the workers that scored, as in the pool's `status.rollout`. None for a penalty, and where
            only a URL is known and the server behind it says none.
        tokenizer: Digest of the tokenizer and chat template of the model that scored; None where the worker says none.
    """

    value: float
    attempts: int
    seconds: float
    penalised_for: SampleError | None = None
    steps: tuple[float, ...] | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None
    tokenizer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unscored:
    """A sample that got no score, under the policy `skip`. It has no value, so that none can be averaged in."""

    error: SampleError
    attempts: int
    seconds: float


Outcome = Scored | Unscored

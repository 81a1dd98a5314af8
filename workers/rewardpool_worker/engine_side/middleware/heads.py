"""From the numbers that an engine gives a sample to its score."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rewardpool_worker.engine_side.middleware.asgi import Answer
from rewardpool_worker.engine_side.middleware.checkpoint import Checkpoint
from rewardpool_worker.engine_side.middleware.errors import EngineFaultError, InvalidRequestError
from rewardpool_worker.engine_side.middleware.requests import Sample

PROBE_TEXT = "ok"  # short, so that it fits every model


@dataclass(frozen=True)
class Head:
    """Rule by which an engine's numbers for a sample become its score: `spec.model.head`, or one label without it.

    | head | numbers of the engine | score |
    |---|---|---|
    | none | one raw logit | that logit |
    | Classifier | a raw logit per label | sum of weight times logit |
    | LMHead | the raw logit of a token, or those of yes and of no | that logit, or yes less no |
    | TokenLevel | per step a raw logit, or two | last, min, mean or product of the steps' values |

    The value of a step is its one raw logit, or the probability of the second of two labels: softmax, as the authors
    of process reward models compute it. A language model's no and yes are two such labels.
    """

    type: str = "OneLabel"
    weights: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    aggregate: str = ""
    step_token: str | None = None
    step_token_id: int | None = None
    softcap: float | None = None
    """Where the model bounds its logits, after what the engine computes: softcap · tanh(logit / softcap)."""

    @classmethod
    def from_json(cls, text: str | None) -> "Head":
        """Read REWARDPOOL_HEAD; None is a model with one label."""
        if text is None:
            return cls()
        said = json.loads(text)
        return cls(
            type=said["type"],
            weights=tuple(said.get("weights", (1.0, -1.0) if said["type"] == "LMHead" and "yesToken" in said else ())),
            labels=tuple(said.get("labels", ())),
            aggregate=said.get("aggregate", ""),
            step_token=said.get("stepToken"),
            step_token_id=said.get("stepTokenId"),
            softcap=said.get("softcap"),
        )

    @property
    def probe(self) -> Sample:
        """A sample that every model with this head has a score for."""
        return PROBE_TEXT if self.step_token_id is None else [self.step_token_id]

    def read(self, raw: Any, index: int) -> dict[str, Any]:
        """Return the score of one sample as the contract's `embedding`, with the values of its steps where it has any.

        Raises:
            EngineFaultError: what is there are not finite numbers.
            NotOneNumberError: there are more, or fewer, than the head has.
            InvalidRequestError: the sample has no step.
        """
        if not isinstance(raw, list):
            raise EngineFaultError(f"the engine scored {raw!r:.100}, which is not a list of numbers")
        if self.type != "TokenLevel":
            return {"embedding": [self._score(raw)]}
        if not raw:
            raise InvalidRequestError(f"input {index} has no step: none of its tokens is {self.step_token!r}")
        counted = raw if self.step_token is not None else raw[-1:]
        steps = [self._step_value(numbers) for numbers in counted]
        return {"embedding": [_finite(_AGGREGATES[self.aggregate](steps))], "steps": steps}

    def _score(self, raw: list[Any]) -> float:
        weights = self.weights or (1.0,)
        if len(raw) != len(weights):
            raise NotOneNumberError(len(raw), len(weights))
        return _finite(sum(weight * self._bounded(logit) for weight, logit in zip(weights, raw, strict=True)))

    def _bounded(self, logit: Any) -> float:
        found = _finite(logit)
        return found if self.softcap is None else self.softcap * math.tanh(found / self.softcap)

    def _step_value(self, raw: Any) -> float:
        logits = [self._bounded(logit) for logit in (raw if isinstance(raw, list) else [raw])]
        if len(logits) == 2:
            # softmax(logits)[1], in the form that neither overflows nor rounds a small probability to 0.
            largest = max(logits)
            no, yes = (math.exp(logit - largest) for logit in logits)
            return yes / (no + yes)
        if len(logits) != 1:
            raise NotOneNumberError(len(logits), 2)
        if self.aggregate == "product":
            raise EngineFaultError(
                "spec.model.head.aggregate product takes probabilities, and a step of this model is one raw logit: use "
                "last, min or mean"
            )
        return logits[0]


_AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "last": lambda steps: steps[-1],
    "min": min,
    "mean": lambda steps: math.fsum(steps) / len(steps),
    "product": math.prod,
}


class NotOneNumberError(EngineFaultError):
    """The engine gives each sample another count of numbers than one, or than the declared head has."""

    def __init__(self, numbers: int, declared: int) -> None:
        needs = "a score is exactly one" if declared == 1 else f"spec.model.head is for {declared}"
        super().__init__(f"the engine gives a sample {numbers} numbers, and {needs}")
        self.numbers = numbers

    def explain(self, checkpoint: Checkpoint) -> str:
        """Return what has so many numbers, and what to declare."""
        architecture, labels = checkpoint.architecture, checkpoint.labels
        if self.numbers == len(labels):
            names = ", ".join(labels[:8]) + ("…" if len(labels) > 8 else "")
            return (
                f"{self}: {architecture} has the labels {names}. Declare how they make one score: "
                f"spec.model.head {{type: Classifier, weights: [{self.numbers} numbers]}}"
            )
        if self.numbers == checkpoint.hidden_size:
            return (
                f"{self}: as many as {architecture} has hidden units, so they are not labels. This engine serves it "
                "without a reward head; serve it on another engine, or declare in spec.model.head where its score is"
            )
        return f"{self}: declare in spec.model.head how those of {architecture} make one score"


def to_embeddings(answer: Answer, *, field: str, head: Head, model: str, count: int) -> dict[str, Any]:
    """Turn an engine's 200 into the contract's answer.

    Args:
        field: where it keeps a sample's raw logits: `probs` in vLLM's /classify, `data` in its /pooling, `embedding` in
            SGLang's answer.
        head: how those become a score.
        count: how many samples were sent.

    Raises:
        EngineFaultError: not JSON, an error, another number of items, or a logit that is not a finite number.
        NotOneNumberError: an item with more numbers than the head has, or with fewer.
        InvalidRequestError: a sample without a step, where steps are scored.
    """
    try:
        scored = json.loads(answer.body)
        if scored.get("error") is not None:
            raise EngineFaultError(f"the engine answered 200 with an error: {scored['error']!r:.500}")
        data, usage = scored["data"], scored.get("usage", {})
        # An engine that speaks the contract has the values of a text's last token, vLLM those of each token.
        of_last = head.type == "TokenLevel" and field == "embedding"
        items = {item["index"]: [item[field]] if of_last else item[field] for item in data}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineFaultError(f"the engine's answer holds no scores: {type(error).__name__}: {error}") from None
    if len(data) != count or any(type(index) is not int for index in items) or items.keys() != set(range(count)):
        raise EngineFaultError(f"the engine answered the samples {[*items]}, {count} were sent")
    embeddings = [{"object": "embedding", "index": i, **head.read(items[i], i)} for i in range(count)]
    return {"object": "list", "model": model, "data": embeddings, "usage": usage}


def _finite(value: Any) -> float:
    try:
        found = math.nan if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
    except OverflowError:  # an int may be too large for a float
        found = math.inf
    if not math.isfinite(found):
        raise EngineFaultError(f"the engine scored {value!r:.60}, which is not a finite number")
    return found

"""Requests and answers of remote reward models, by the protocols of two trainers; data in, data out.

OpenRLHF 0.11 (openrlhf/utils/agent.py)      {"query": [...], "prompts": [...], "labels": [...]}
                                          -> {"rewards": [...], "scores": [...], "extra_logs": {...}}
slime (slime/rollout/rm_hub/__init__.py)     {"prompt": ..., "response": ..., "label": ...} -> the reward
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rewardpool._client.pool import Pool
from rewardpool._policy.text import PolicyText, prompt_tail
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.rating import Rating
from rewardpool.errors import ScoreError

MAX_ROWS = 4096
MAX_MESSAGES = 1024


class Query(BaseModel):
    """A request of OpenRLHF. `query` is each prompt with the response behind it, decoded with special tokens."""

    model_config = ConfigDict(frozen=True)

    query: Annotated[list[str], Field(min_length=1, max_length=MAX_ROWS)]
    prompts: Annotated[list[str], Field(max_length=MAX_ROWS)]
    labels: Annotated[list[Any], Field(max_length=MAX_ROWS)]

    @model_validator(mode="after")
    def _same_length(self) -> "Query":
        if not len(self.query) == len(self.prompts) == len(self.labels):
            raise ValueError("query, prompts and labels must have the same length")
        return self

    def episodes(self, text: PolicyText, *, strict: bool) -> list[Episode]:
        """One for each row. Raises InvalidSampleError, as `PolicyText` does."""
        return [
            Episode(
                prompt=text.prompt(prompt, strict=strict, label=f"row {row}"),
                response=text.after(prompt, query, label=f"row {row}"),
                prompt_tail=prompt_tail(prompt),
                ground_truth=label,
                id=f"row {row}",
            )
            for row, (query, prompt, label) in enumerate(zip(self.query, self.prompts, self.labels, strict=True))
        ]


class SlimeSample(BaseModel):
    model_config = ConfigDict(frozen=True)

    prompt: str | Annotated[list[dict[str, Any]], Field(max_length=MAX_MESSAGES)]
    response: str
    label: Any = None

    def episode(self, text: PolicyText, *, strict: bool) -> Episode:
        """The sample as an episode. Raises InvalidSampleError, as `PolicyText` does."""
        return Episode(
            prompt=text.prompt(self.prompt, strict=strict, label="sample"),
            response=text.response(self.response, label="sample"),
            prompt_tail=prompt_tail(self.prompt),
            ground_truth=self.label,
            id="sample",
        )


def openrlhf_answer(ratings: Sequence[Rating]) -> dict[str, Any]:
    """Rewards, scores and logs of scored rows, each of shape (rows,)."""
    totals = [rating.total for rating in ratings]
    return {"rewards": totals, "scores": totals, "extra_logs": extra_logs(ratings)}


def extra_logs(ratings: Sequence[Rating]) -> Mapping[str, list[float]]:
    """Raw scores by part, of the parts that have one for every row: OpenRLHF makes a tensor of each."""
    logs: dict[str, list[float]] = {}
    for part in ratings[0].components if ratings else ():
        scores = [score for rating in ratings if (score := rating.components[part]) is not None]
        if len(scores) == len(ratings):
            logs[part] = scores
    return logs


def slime_answer(rating: Rating, *, with_parts: bool) -> float | dict[str, float | str | None] | None:
    """The reward, or with its parts and the fault of a part without a score for `--reward-key total`."""
    if not with_parts:
        return rating.total
    # Last, because a part may have one of these names.
    return {**rating.components, "total": rating.total, "fault": rating.error.fault if rating.error else None}


def reads_prompts(pools: Iterable[Pool]) -> bool:
    """Return whether a model is shown the prompt, so that it must be free of the policy's template."""
    return any(pool.endpoint.model_type != "Function" for pool in pools)


def scored(ratings: Sequence[Rating]) -> Sequence[Rating]:
    """Return the ratings as they are. Raises SampleError where one is unscored, which these protocols cannot say."""
    for rating in ratings:
        if rating.total is None:
            raise rating.error or ScoreError(
                "(unnamed)", "is unscored, which this protocol cannot say", fault="verifier"
            )
    return ratings

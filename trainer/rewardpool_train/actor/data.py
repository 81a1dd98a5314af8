"""Data of a step: prompts from a file, rollouts, and the episodes that they are scored as."""

import functools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from rewardpool._mistakes import Mistakes, validated
from rewardpool._rewards.episode import Episode
from rewardpool.errors import ConfigError

MOST_MISTAKES: Final = 20  # wrong lines of the prompts' file that one error names


class Prompt(BaseModel):
    """A line of the prompts' file. Only reward functions read the last three fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    prompt: str
    data_source: str = ""
    ground_truth: Any = None
    extra_info: dict[str, Any] = {}
    """Anything else that a reward function reads."""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """A response.

    Attributes:
        member: Index among the responses to the prompt.
        prompt_ids: Token ids, shape (prompt tokens,).
        response_ids: Token ids, shape (response tokens,), including the end token if there is one.
        ended: False for a response that was cut at the length limit.
        version: Version of the policy that began it: the number of optimiser steps taken before.
        token_versions: Version of the policy for each token, shape (response tokens,), if the weights changed during
            the response; None if all tokens have `version`.
        log_probs: Log-probabilities of the response tokens as they were sampled, with the sampling temperature, shape
            (response tokens,); None if the engine does not return them.
    """

    group: int
    member: int
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    ended: bool
    version: int = 0
    token_versions: Sequence[int] | None = None
    log_probs: Sequence[float] | None = None


def read_prompts(path: Path) -> list[Prompt]:
    """Read a UTF-8 file with one JSON object per line, with or without a byte order mark.

    Raises:
        ConfigError: The file is missing, empty or has wrong lines; the first `MOST_MISTAKES` of them are named.
    """
    try:
        # Not splitlines: JSON strings may hold U+2028, U+2029 and U+0085, which it also splits at.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise ConfigError("data.prompts", f"cannot read {path}: {error.strerror}") from error
    prompts: list[Prompt] = []
    mistakes = Mistakes()
    for number, line in enumerate(lines, start=1):
        if line.strip() and len(mistakes) < MOST_MISTAKES:
            with mistakes.gather():
                prompts.append(_parse(path, number, line))
    mistakes.check()
    if not prompts:
        raise ConfigError("data.prompts", f"{path} has no prompt; put one JSON object with a `prompt` on each line")
    return prompts


def _parse(path: Path, number: int, line: str) -> Prompt:
    place = f"data.prompts: line {number} of {path}"
    try:
        raw = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(place, f"is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(place, "must be a JSON object with a `prompt`")
    return validated(Prompt, raw, path=place)


class PromptOrder:
    """Endless sequence of a job's prompts: every prompt once per round, each round in another order.

    Any index can be read, so that a job can resume anywhere.
    """

    def __init__(self, prompts: Sequence[Prompt], *, seed: int) -> None:
        self._prompts = prompts
        self._seed = seed
        self._round = functools.lru_cache(maxsize=4)(self._shuffled)

    def __getitem__(self, index: int) -> Prompt:
        number, place = divmod(index, len(self._prompts))
        return self._prompts[self._round(number)[place]]

    def _shuffled(self, number: int) -> list[int]:
        rng = random.Random(f"{self._seed}.{number}")  # noqa: S311 - an order, not a secret
        return rng.sample(range(len(self._prompts)), k=len(self._prompts))


def prompt_tokens(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Return the token ids that the policy continues, shape (tokens,)."""
    turns = [{"role": "user", "content": prompt.prompt}]
    encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=True)
    return list(encoded["input_ids"])


def to_episode(
    prompt: Prompt, response: str, rollout: Trajectory, *, group: int, version: int, prompt_tail: str, name: str
) -> Episode:
    """Return the episode to rate: prompt and response as texts, whatever the policy's chat template.

    Args:
        response: Text of the response, without special tokens.
        group: Same number for all responses to one prompt.
        version: Version of the policy when the group began.
        prompt_tail: Last words of the prompt, in the policy's chat template.
    """
    return Episode(
        prompt=prompt.prompt,
        response=response,
        prompt_tail=prompt_tail,
        ground_truth=prompt.ground_truth,
        data_source=prompt.data_source,
        extra_info=prompt.extra_info,
        group=group,
        response_ids=rollout.response_ids,
        version=version,
        truncated=not rollout.ended,
        id=name,
    )

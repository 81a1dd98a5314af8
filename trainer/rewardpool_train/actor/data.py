"""What goes into a step and what comes out: prompts from a file, rollouts, and the samples they are scored as."""

import functools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from rewardpool.errors import ConfigError
from rewardpool.mistakes import Mistakes, validated
from rewardpool.rewards.episode import Episode

MOST_MISTAKES: Final = 20
"""Wrong lines of the prompts' file that are named at once."""


class Prompt(BaseModel):
    """One line of the prompts' file. The last three are what a reward function is given; a reward model needs none."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    prompt: str
    """What the user says."""
    data_source: str = ""
    """Where the prompt is from."""
    ground_truth: Any = None
    """The right answer, where there is one."""
    extra_info: dict[str, Any] = {}
    """Anything else that a reward function reads."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One response.

    Attributes:
        group: Index of its group, as its `GroupTask` has it.
        member: Its index among the responses to that prompt.
        prompt_ids: Token ids, shape (prompt tokens,).
        response_ids: Token ids, shape (response tokens,), the end token included where there is one.
        ended: Whether it ended by itself; False for one that was cut at the length limit.
        version: Version of the policy that began it: the number of optimiser steps behind its weights.
        token_versions: The version that made each token, shape (response tokens,), where the weights changed while it
            was made; None where `version` made all of it.
        log_probs: Log-probabilities of the response tokens when they were sampled, by the weights and at the
            temperature they were sampled with, shape (response tokens,); None where the engine does not say.
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
    """Read a file in UTF-8 with one JSON object per line, with or without a byte order mark.

    Raises:
        ConfigError: The file is missing or empty, or lines of it are wrong: the first `MOST_MISTAKES` are named.
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
    """The prompts of a job, without end: every prompt once per round, each round shuffled anew.

    Any of them can be asked for, so that a job can go on anywhere.
    """

    def __init__(self, prompts: Sequence[Prompt], *, seed: int) -> None:
        self._prompts = prompts
        self._seed = seed
        self._round = functools.lru_cache(maxsize=4)(self._shuffled)

    def __getitem__(self, index: int) -> Prompt:
        """Return the prompt with that number, from 0."""
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
    prompt: Prompt, response: str, rollout: Rollout, *, group: int, version: int, prompt_tail: str, name: str
) -> Episode:
    """Return what is rated: the prompt and the response as texts, whatever the policy's chat template.

    Args:
        prompt: That was asked.
        response: As text, without special tokens.
        rollout: The response in the policy's tokens.
        group: The same for all responses to one prompt.
        version: Of the policy when that group was begun.
        prompt_tail: The last words of the prompt, in the policy's chat template.
        name: For messages.
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

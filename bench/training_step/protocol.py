"""The published run that is repeated, and how its step divides. Pure.

verl pull request 2854, Qwen2-7B on GSM8K with Megatron: 5 answers to each of 1,024 prompts a step, mini-batches of 256
prompts, a reward call that takes 1 to 40 s (uniform), 256 of them at a time, 105 steps.

    17 h 53 min at first           = 613 s a step
    5,120 calls of 20.5 s by 256 callers  = 410 s of them rewards, so 203 s are work of the GPUs

How those 203 s divide is not published. A pipeline of mini-batches alone took 15 h 41 min, 75 s a step less, and what
it can hide are the updates of three of the four mini-batches: so all four updates are 100.6 s, and the rest rollout.
"""

import random
from dataclasses import dataclass
from typing import ClassVar, Final

FIXED: Final = "fixed256"
ELASTIC: Final = "elastic"
AT_ONCE: Final = "at_once"
"""No pool, every score is there at once: what a step takes longer than the GPUs is the pipeline and the bench."""
POOLS: Final = (FIXED, ELASTIC, AT_ONCE)
PROMPTS: Final = 1_024
ANSWERS: Final = 5
MINIBATCH_PROMPTS: Final = 256
CALLERS: Final = 256
REWARD_SECONDS: Final = (1.0, 40.0)
STEPS: Final = 105
AT_FIRST_SECONDS: Final = (17 * 60 + 53) * 60 / STEPS
BY_MINIBATCH_SECONDS: Final = (15 * 60 + 41) * 60 / STEPS
ALL_REWARDS_SECONDS: Final = PROMPTS * ANSWERS * sum(REWARD_SECONDS) / 2 / CALLERS


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One step of it, every time divided by `factor`.

    Attributes:
        factor: By which times are divided.
        prompts: Of a step; fewer than published only in a trial run, and then callers are fewer in proportion.
        seed: Decides the delays.
        name: Of the protocol.
        answers: To each prompt.
        whole_prompts: Of a step that is no trial run.
        max_staleness: Versions, under `fully_async`; under a pipeline of one step the oldest sample is 4 old.
        pools: That it is run against.
    """

    factor: float
    prompts: int = PROMPTS
    seed: int = 0
    name: ClassVar[str] = "samples"
    answers: ClassVar[int] = ANSWERS
    whole_prompts: ClassVar[int] = PROMPTS
    max_staleness: ClassVar[int] = 4
    pools: ClassVar[tuple[str, ...]] = POOLS

    @property
    def callers(self) -> int:
        """Reward calls at a time, where their number is fixed."""
        return max(1, CALLERS * self.prompts // self.whole_prompts)

    @property
    def minibatch_prompts(self) -> int:
        """Prompts of an optimiser step."""
        return self.prompts * MINIBATCH_PROMPTS // PROMPTS

    @property
    def samples(self) -> int:
        """Of a step."""
        return self.prompts * self.answers

    @property
    def floor_seconds(self) -> float:
        """A step's work of the GPUs."""
        return (AT_FIRST_SECONDS - ALL_REWARDS_SECONDS) / self.factor

    @property
    def update_seconds(self) -> float:
        """The update on a whole step."""
        minibatches = PROMPTS // MINIBATCH_PROMPTS
        hidden = (minibatches - 1) / minibatches
        return (AT_FIRST_SECONDS - BY_MINIBATCH_SECONDS) / hidden / self.factor

    @property
    def rollout_seconds(self) -> float:
        """The rollout of a whole step."""
        return self.floor_seconds - self.update_seconds

    def reward_seconds(self, *, group: int, member: int) -> float:
        """How long the reward of one answer takes."""
        return random.Random(f"{self.seed}/{group}/{member}").uniform(*REWARD_SECONDS) / self.factor

    def score(self, *, group: int, member: int) -> float:
        """What that reward is: different from that of every other answer nearby, and exact as a float."""
        return float(group % 65_536 * ANSWERS + member)

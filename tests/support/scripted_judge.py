"""ScriptedJudge: stands in for a Generative pool where a test is about what is made of a judge's answers."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewardpool._client.answer import Judgement
from rewardpool._client.pool import Pool
from rewardpool._config import RewardConfig


class ScriptedJudge(Pool):
    """Answers by a function of the question; it never connects."""

    def __init__(self, answer: Callable[[str, Mapping[str, Any]], str]) -> None:
        super().__init__(RewardConfig(url="http://127.0.0.1:9"))
        self._answer = answer
        self.probabilities: Callable[[str], Mapping[str, float]] = lambda _: {}
        """Of its first token, by the question."""
        self.asked: list[tuple[Sequence[Mapping[str, Any]], dict[str, Any]]] = []

    async def judge(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        label: str | None = None,
        max_generations: int = 3,
        **sampling: Any,
    ) -> Judgement:
        """Return the answer to the last message, which is the question."""
        self.asked.append((messages, sampling))
        answer = self._answer(str(messages[-1]["content"]), sampling)
        return answer if isinstance(answer, Judgement) else Judgement(answer)

    async def first_token(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        label: str | None = None,
        max_generations: int = 3,
        **sampling: Any,
    ) -> list[tuple[str, float]]:
        """Return the likeliest beginnings of the answer to the last message."""
        self.asked.append((messages, sampling))
        shares = self.probabilities(str(messages[-1]["content"]))
        return [(token, math.log(share)) for token, share in shares.items()]

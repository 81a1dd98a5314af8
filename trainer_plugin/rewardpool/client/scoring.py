"""From a sample to its outcome: what is asked for it, and what the answer makes of it."""

from typing import Any

from rewardpool.client.asking import OnEnd
from rewardpool.client.effort import Effort
from rewardpool.client.report import Ledger
from rewardpool.client.request import score_request
from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import SampleError
from rewardpool.sample import Outcome, Sample, Scored, Unscored
from rewardpool_api.contract import StepScore


class Scoring:
    """One sample under way. Not functions inside one: of these there are as many as samples wait."""

    __slots__ = ("_ledger", "_on_end", "_sample", "effort")

    def __init__(self, sample: Sample, label: str, ledger: Ledger, on_end: OnEnd[Outcome]) -> None:
        """Prepare.

        Args:
            sample: To be scored.
            label: Names it in messages.
            ledger: Where its score is counted.
            on_end: Receives the outcome, or the error in its place where that is none of this sample's.
        """
        self.effort = Effort(label)
        self._sample = sample
        self._ledger = ledger
        self._on_end = on_end

    def body(self, endpoint: Endpoint) -> dict[str, Any]:
        """The request for an endpoint. Raises the SampleError that says why there is none."""
        return score_request(endpoint, self._sample, self.effort.label)

    def ended(self, score: float | None, error: BaseException | None) -> None:
        """Take in the score, or the error in its place."""
        effort = self.effort
        if score is not None:
            self._ledger.score(effort.seconds)
            steps = score.steps if isinstance(score, StepScore) else None
            self._on_end(Scored(value=score, attempts=effort.attempts, seconds=effort.seconds, steps=steps), None)
        elif isinstance(error, SampleError):
            self._on_end(Unscored(error=error, attempts=effort.attempts, seconds=effort.seconds), None)
        else:
            self._on_end(None, error)

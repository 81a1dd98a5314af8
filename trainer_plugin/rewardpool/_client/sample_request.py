"""Request for one sample, and its outcome. It waits as one object, for tens of thousands may wait."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rewardpool._client.answer import Score, read_score
from rewardpool._client.request import ScoreRequest
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._sample import Outcome, Sample, Scored, Unscored
from rewardpool.errors import InvalidSampleError, SampleError, SampleTooLongError
from rewardpool_api.contract import AnsweringWorker, DetailedScore


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class SampleRequest(ScoreRequest[Score]):
    sample: Sample
    index: int = 0
    on_end: "Callable[[SampleRequest], None] | None" = None
    """Called before the callbacks; it must not raise."""

    def __post_init__(self) -> None:
        self.connections.breaker.begun()

    def content(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the body. Raises SampleError where the pool's model cannot take the sample."""
        sample, label = self.sample, self.label
        if endpoint.model_type == "Generative":
            raise InvalidSampleError(
                label, f"{endpoint.pool} is Generative, which writes instead of scoring; use judge"
            )
        if endpoint.model_type == "Teacher":
            raise InvalidSampleError(
                label, f"{endpoint.pool} is a Teacher, which gives log-probabilities instead of scores; use logprobs"
            )
        if endpoint.model_type is not None and (endpoint.model_type == "Function") != (sample.function is not None):
            wanted = "function" if endpoint.model_type == "Function" else "text or token_ids"
            raise InvalidSampleError(label, f"{endpoint.pool} is {endpoint.model_type} and takes {wanted}")
        limit = endpoint.max_model_len
        if sample.token_ids is not None and limit is not None and len(sample.token_ids) > limit:
            raise SampleTooLongError(label, len(sample.token_ids), limit)
        return {**endpoint.model_fields, "input": sample.to_input(label)}

    @property
    def tokens(self) -> int | None:
        return None if self.sample.token_ids is None else len(self.sample.token_ids)

    @property
    def tokenizer(self) -> str | None:
        return self.sample.tokenizer

    @property
    def revision(self) -> str | None:
        return self.sample.revision

    def read(self, status: int, body: bytes) -> Score:
        try:
            return read_score(status, body, self.label, echo=self.echo, adapter=self.connections.config.adapter)
        except SampleTooLongError as error:
            function = self.sample.function
            if function is not None and 2 * len(function.solution_str) < len(self.sample.to_input(self.label)):
                error.fault = "verifier"  # the row's other fields are the longer part
            raise

    def worker_of(self, answer: Score) -> AnsweringWorker:
        return answer.by.worker

    def outcome(self) -> Outcome:
        """Return the outcome after the end, before the failure policy. Raises PoolError, or CancelledError."""
        if isinstance(self._error, SampleError):  # raised here, it would have this frame and with it the request
            return Unscored(error=self._error, attempts=self.attempts, seconds=self.seconds)
        value, by = self.result()
        scored = Scored(
            value=value,
            attempts=self.attempts,
            seconds=self.seconds,
            revision=by.revision,
            tokenizer=by.tokenizer,
        )
        return replace(scored, steps=value.steps, info=value.info) if isinstance(value, DetailedScore) else scored

    def _count_end(self) -> None:
        ScoreRequest._count_end(self)
        if self._error is None:
            self.counters.tally = self.counters.tally.plus(self.result().value)

    def notify(self) -> None:
        self.connections.breaker.ended()
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self)
        ScoreRequest.notify(self)

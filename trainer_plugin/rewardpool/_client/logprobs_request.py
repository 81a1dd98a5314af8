"""Request to a teacher for one sequence."""

from dataclasses import dataclass, replace
from typing import Any

from rewardpool._client.answer import read_logprobs
from rewardpool._client.connections.exchange import MAX_ANSWER_BYTES
from rewardpool._client.request import ScoreRequest
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._logprobs import Logprobs
from rewardpool.errors import InvalidSampleError, SampleTooLongError
from rewardpool_api.teacher_wire import SequenceQuestion

# A sequence takes a slot for each so many tokens, those of one step of a teacher's engine.
TOKENS_PER_SLOT = 2048


def slots_of(asked: SequenceQuestion) -> int:
    return -(-len(asked.token_ids) // TOKENS_PER_SLOT)


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class LogprobsRequest(ScoreRequest[Logprobs]):
    # Without the model's name, which the endpoint has.
    asked: SequenceQuestion
    vocabulary: str | None = None
    """Digest of the student's; None where any model may answer."""

    @property
    def tokenizer(self) -> str | None:
        return self.vocabulary

    @property
    def tokens(self) -> int:
        return len(self.asked.token_ids)

    def content(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the body. Raises SampleError where the pool's model gives no log-probabilities of the sequence."""
        if endpoint.model_type not in (None, "Teacher"):
            raise InvalidSampleError(
                self.label, f"{endpoint.pool} is {endpoint.model_type}, and a Teacher gives log-probabilities"
            )
        length, limit = self.tokens, endpoint.max_model_len
        if limit is not None and length > limit:
            raise SampleTooLongError(self.label, length, limit)
        return replace(self.asked, model=endpoint.served_name).to_wire()

    @property
    def most_answer_bytes(self) -> int:
        return max(MAX_ANSWER_BYTES, self.asked.most_answer_bytes)

    def read(self, status: int, body: bytes) -> Logprobs:
        return read_logprobs(status, body, self.label, echo=self.echo, asked=self.asked)

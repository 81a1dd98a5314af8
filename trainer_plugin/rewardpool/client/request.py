"""What is sent for one sample. Pure."""

from typing import Any

from rewardpool.discovery.endpoint import Endpoint
from rewardpool.errors import InvalidSampleError, SampleTooLongError
from rewardpool.sample import Sample


def score_request(endpoint: Endpoint, sample: Sample, label: str) -> dict[str, Any]:
    """The request for the score of one sample.

    Raises:
        SampleError: The pool's model cannot take it.
    """
    if endpoint.model_type == "Generative":
        raise InvalidSampleError(label, f"{endpoint.pool} is Generative, which writes instead of scoring; use judge")
    if endpoint.model_type is not None and (endpoint.model_type == "Function") != (sample.function is not None):
        wanted = "function" if endpoint.model_type == "Function" else "text or token_ids"
        raise InvalidSampleError(label, f"{endpoint.pool} is {endpoint.model_type} and takes {wanted}")
    limit = endpoint.max_model_len
    if sample.token_ids is not None and limit is not None and len(sample.token_ids) > limit:
        raise SampleTooLongError(label, len(sample.token_ids), limit)
    return {**endpoint.model_fields, "input": sample.to_input(label)}

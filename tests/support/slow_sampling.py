"""A vLLM that samples a token in 20 ms at the least, so that a test may change its weights underneath a response.

On two processors a small policy makes tokens faster than vLLM's server can pass them on. The server then answers
nothing else until the responses have ended, a change of weights included.
"""

import time
from typing import Any

from vllm.v1.sample.logits_processor import LogitsProcessor

STEP_SECONDS = 0.02


class SlowSampling(LogitsProcessor):
    """Leaves every logit as it is; for `--logits-processors`."""

    def __init__(self, *_: Any) -> None:
        pass

    def apply(self, logits: Any) -> Any:
        time.sleep(STEP_SECONDS)
        return logits

    def is_argmax_invariant(self) -> bool:
        return False  # vLLM would not call it where only the largest logit counts

    def update_state(self, batch_update: Any) -> None:
        pass

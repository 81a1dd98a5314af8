"""StandInVllm: vLLM's names and answers as far as sleeping goes, which the real one does on GPUs alone.

Recorded from the source of vLLM 0.32 (entrypoints/serve/dev/sleep, v1/engine/core.py): routes, answers, that a sleeping
engine holds requests without a word, and that its developer's routes are there beside those for sleeping.
"""


class SamplingParams:
    """What a request is asked with, as attributes."""

    def __init__(self, **given: object) -> None:
        vars(self).update(given)

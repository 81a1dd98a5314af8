"""What each engine can serve: one table, from which the rules of a manifest are made, and which workers go by.

It needs the standard library alone: workers have it in stock images.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

EngineName = Literal["vllm", "sglang", "transformers", "python"]


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What one engine for models can do, as far as it differs from vLLM."""

    generates: bool = True
    """It serves judges that write, with structured output, and teachers."""
    heads: Literal["none", "last token", "steps"] = "steps"
    """Which heads of `spec.model.head` it has the numbers of."""
    adapters: bool = True
    """It scores by LoRA adapters over the model."""
    sleeps: bool = True
    splits: bool = True
    """It splits one model over several GPUs."""
    halves_float32: bool = True
    """It serves float32 weights as float16 unless it is told a dtype."""
    reserved_tokens: int = 0
    """Tokens of its longest context that it keeps for writing, though a teacher is asked for none."""


FOR_MODELS: Final[Mapping[EngineName, Capabilities]] = {
    "vllm": Capabilities(reserved_tokens=1),
    "sglang": Capabilities(heads="last token", reserved_tokens=7),
    "transformers": Capabilities(
        generates=False, heads="none", adapters=False, sleeps=False, splits=False, halves_float32=False
    ),
}
"""The engines that serve a model; `python` serves a function."""


def engines_where(holds: Callable[[Capabilities], bool]) -> tuple[EngineName, ...]:
    """Return the engines for models for which something holds."""
    return tuple(name for name, can in FOR_MODELS.items() if holds(can))

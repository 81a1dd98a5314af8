"""Capabilities of each engine: one table, from which the rules of a manifest are made, and which workers use.

It needs the standard library alone: workers have it in stock images.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

EngineName = Literal["vllm", "sglang", "transformers", "python"]

TEACHER_STEP_TOKENS: Final = 2048
"""Tokens for which a teacher has log-probabilities of the whole vocabulary in memory at once: of one step of vLLM, of
one piece of SGLang's."""


@dataclass(frozen=True)
class Setting:
    """Arguments in `spec.engine.args`, or a variable in `spec.engine.env`; neither where an engine does so anyway."""

    args: tuple[str, ...] = ()
    env: tuple[str, str] | None = None

    def __str__(self) -> str:
        if self.env is None:
            return f"{' '.join(self.args)} in spec.engine.args"
        return f"{'='.join(self.env)} in spec.engine.env"

    def is_in(self, args: Sequence[str], env: Mapping[str, str]) -> bool:
        """Return whether an engine with these arguments and variables has it already."""
        if self.env is not None:
            return env.get(self.env[0]) == self.env[1]
        return not self.args or f" {' '.join(self.args)} " in f" {' '.join(args).replace('=', ' ')} "


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Capabilities of one engine for models, as far as they differ from vLLM's."""

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
    no_prefix_cache: Setting = Setting()
    """By which it computes every token anew."""
    no_chunks: Setting = Setting()
    """By which it computes no sequence in parts."""
    batch_invariant: Setting
    """By which a sample's numbers do not depend on the samples beside it, for `spec.engine.deterministic`."""
    invariant_on_cpu: bool = False
    """It has that on a CPU as well."""


FOR_MODELS: Final[Mapping[EngineName, Capabilities]] = {
    "vllm": Capabilities(
        reserved_tokens=1,
        no_prefix_cache=Setting(("--no-enable-prefix-caching",)),
        no_chunks=Setting(("--no-enable-chunked-prefill",)),
        batch_invariant=Setting(env=("VLLM_BATCH_INVARIANT", "1")),
    ),
    "sglang": Capabilities(
        heads="last token",
        reserved_tokens=7,
        no_prefix_cache=Setting(("--disable-radix-cache",)),
        no_chunks=Setting(("--chunked-prefill-size", "-1")),
        batch_invariant=Setting(("--enable-deterministic-inference",)),
    ),
    "transformers": Capabilities(
        generates=False,
        heads="none",
        adapters=False,
        sleeps=False,
        splits=False,
        halves_float32=False,
        batch_invariant=Setting(("--max-batch-samples", "1")),
        invariant_on_cpu=True,
    ),
}
"""The engines that serve a model; `python` serves a function."""


def setting_against(
    name: EngineName, *, cached: bool, chunked: bool, deterministic: bool, args: Sequence[str], env: Mapping[str, str]
) -> str | None:
    """Return what to set where an engine's numbers depend on how they are asked for; None where nothing is left.

    Args:
        name: The engine's.
        cached: Whether they depend on a cached prefix.
        chunked: Whether they depend on nothing but chunks.
        deterministic: `spec.engine.deterministic`.
        args: What it is started with.
        env: Its variables.
    """
    can = FOR_MODELS[name]
    for setting in [can.no_prefix_cache] * cached + [can.no_chunks] * chunked:
        if not setting.is_in(args, env):
            return str(setting)
    if deterministic or can.batch_invariant.is_in(args, env):
        return None
    return "spec.engine.deterministic to true" + ("" if can.invariant_on_cpu else ", which takes a GPU")


def engines_where(holds: Callable[[Capabilities], bool]) -> tuple[EngineName, ...]:
    """Return the engines for models for which something holds."""
    return tuple(name for name, can in FOR_MODELS.items() if holds(can))

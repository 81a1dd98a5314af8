"""LoRA adapters: further reward models over a pool's own, which share its weights and its replicas."""

from typing import Annotated, ClassVar, Final

from pydantic import Field

from rewardpool_api.rules import ApiModel, Rule
from rewardpool_api.source import FUNCTION_SCHEME, SOURCE_PATTERN, is_source

MAX_ADAPTERS: Final = 16

AdapterName = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
_COMMIT: Final = r"^[0-9a-f]{40}$"
_TAKEN: Final = ("hf", "pvc", "file")


class AdapterSpec(ApiModel):
    """One LoRA adapter, as PEFT saves it."""

    name: AdapterName
    """Name by which trainers select the adapter. The pool's own name is reserved for the base model."""
    source: Annotated[str, Field(max_length=1024)]
    """`hf://ORG/NAME`, `pvc://CLAIM/PATH` or `file:///ABSOLUTE/PATH`: a folder with `adapter_config.json` and `adapter_model.safetensors`."""
    revision: Annotated[str, Field(pattern=_COMMIT)] | None = None
    """Commit of an `hf://` adapter, 40 hexadecimal digits; required for such an adapter, so that all replicas load the same weights."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.source.matches('{SOURCE_PATTERN}') && !(self.source + '/').contains('/../') "
            f"&& !self.source.startsWith('s3://') && !self.source.startsWith('{FUNCTION_SCHEME}')",
            message="spec.model.adapters[].source must be hf://ORG/NAME, pvc://CLAIM, pvc://CLAIM/PATH or file:///ABSOLUTE/PATH",
            holds=lambda adapter: is_source(adapter.source) and adapter.source.partition("://")[0] in _TAKEN,
        ),
        Rule(
            cel="self.source.startsWith('hf://') == has(self.revision)",
            message="spec.model.adapters[].revision must be the commit of an hf:// source, and is for those alone: a branch may move between the starts of two replicas, which would then score differently",
            holds=lambda adapter: adapter.source.startswith("hf://") == (adapter.revision is not None),
        ),
    )


def are_distinct(adapters: list[AdapterSpec]) -> bool:
    """True if each has a name of its own."""
    return len({adapter.name for adapter in adapters}) == len(adapters)

"""Entry of the catalogue for one reward model."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rewardpool_api import RewardPool, names
from rewardpool_api.engines import EngineName


class Entry(BaseModel):
    """One reward model, or several sizes of one that are served alike."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=names.POOL_NAME_PATTERN)
    repository: str = Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")
    """`ORG/NAME` on the hub."""
    also: tuple[str, ...] = ()
    architecture: str
    kind: str
    spec: dict[str, Any] | None
    """`spec` of the manifest that serves it, without the source; None where no engine can."""
    also_on: tuple[EngineName, ...] = ()
    run: str | None
    """Part of it that was run: a tiny model of the same class on a CPU. None for nothing; never the real one."""
    notes: str = ""

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The manifest that serves it; None where no engine can."""
        return None if self.spec is None else self.manifest_for(f"hf://{self.repository}", self.name)

    def manifest_for(self, source: str, name: str) -> dict[str, Any]:
        """The same for a copy of it elsewhere, or for another of its sizes.

        Raises:
            ValueError: no engine can serve it.
        """
        if self.spec is None:
            raise ValueError(self.notes)
        model = {"source": source, **self.spec.get("model", {})}
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name},
            "spec": {**self.spec, "model": model},
        }

    def on(self, engine: EngineName) -> dict[str, Any]:
        """The manifest with one of the engines in `also_on`.

        Raises:
            ValueError: it is not among them, nor the manifest's own.
        """
        if self.manifest is None or engine not in (self.manifest["spec"]["engine"]["name"], *self.also_on):
            raise ValueError(f"{self.repository} is not served on {engine}. {self.notes}")
        spec = self.manifest["spec"]
        return {**self.manifest, "spec": {**spec, "engine": {**spec["engine"], "name": engine}}}

    @property
    def pool(self) -> RewardPool | None:
        return None if self.manifest is None else RewardPool.model_validate(self.manifest)

    @property
    def engines(self) -> str:
        return "none" if self.pool is None else ", ".join((self.pool.spec.engine.name, *self.also_on))

    @property
    def repositories(self) -> tuple[str, ...]:
        return (self.repository, *self.also)

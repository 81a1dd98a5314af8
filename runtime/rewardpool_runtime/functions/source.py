"""Location of a function for the processes that run it: by its name, or as what pickle makes of it."""

import base64
import functools
import importlib.machinery
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rewardpool_runtime.functions.load import FunctionLoadError
from rewardpool_runtime.json_values import described


@dataclass(frozen=True, kw_only=True)
class FunctionSource:
    """A function, for another process.

    Attributes:
        reference: `module:function`, to be imported there.
        folders: Where modules are looked for there, before all others.
        pickled: Where it cannot be imported: what cloudpickle makes of it.
    """

    name: str
    reference: str = ""
    pickled: bytes = b""
    folders: tuple[str, ...] = ()

    @classmethod
    def from_function(cls, function: str | Callable[..., Any]) -> "FunctionSource":
        """Return the source of a function: of one that is given in Python, by its name where it can be imported.

        Raises:
            FunctionLoadError: It holds what another process cannot have.
        """
        if isinstance(function, str):
            return cls(name=function, reference=function)
        name = getattr(function, "__qualname__", None) or described(function)
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        if module is not None and _is_importable(module) and _is_at(module, name, function):
            reference = f"{module.__name__}:{name}"
            return cls(name=reference, reference=reference)
        return cls(name=name, pickled=_pickled(function, name))

    def to_wire(self) -> dict[str, str]:
        if self.reference:
            return {"name": self.name, "reference": self.reference}
        return {"name": self.name, "pickled": base64.b64encode(self.pickled).decode()}


def _is_at(module: ModuleType, name: str, function: Any) -> bool:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function


def _is_importable(module: ModuleType) -> bool:
    """Return whether an interpreter with the same folders imports this module by its name."""
    if module.__name__ == "__main__":
        return False
    folders: Any = None
    spec = None
    parts = module.__name__.split(".")
    for count in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:count]), folders)
        if spec is None:
            return False
        folders = spec.submodule_search_locations
    return spec is not None and spec.origin == getattr(module, "__file__", None)


def _pickled(function: Callable[..., Any], name: str) -> bytes:
    import cloudpickle

    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    homes = (sys.modules.get(str(getattr(one, "__module__", ""))) for one in (inner, type(inner)))
    by_value = {home for home in homes if home is not None and home.__name__ != "__main__" and _is_file(home)}
    by_value = {home for home in by_value if not _is_importable(home)}
    for home in by_value:
        cloudpickle.register_pickle_by_value(home)
    try:
        return bytes(cloudpickle.dumps(function))
    except Exception as error:  # whatever a value of the user's raises
        raise FunctionLoadError(
            f"cannot load the function {name} in other processes, for what it holds: {type(error).__name__}: {error};"
            " give it as module:function, or set run_in: threads, where functions share objects with the job"
        ) from None
    finally:
        for home in by_value:
            cloudpickle.unregister_pickle_by_value(home)


def _is_file(module: ModuleType) -> bool:
    return getattr(module, "__file__", None) is not None

"""RewardPool's stand-in for `sgl_kernel`, SGLang's compiled kernels. It is not SGLang's, and it is only for CPUs.

SGLang imports names of `sgl_kernel` while it starts, and needs none of them for what it runs on a CPU with torch's own
operators. The real package exists for GPUs alone. Here every name and every submodule can be imported, and raises
NotImplementedError the moment it is called, so that nothing is ever computed by something else than SGLang and torch.

Two operators are called at every start and only prepare threads and shared memory: those exist and do nothing.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

import torch

if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
    raise ImportError(
        "this sgl_kernel is RewardPool's stand-in for CPUs and has no kernels; "
        "set SGLANG_USE_CPU_ENGINE=1, or install the real package for a GPU"
    )


class _NoKernel:
    """A name of the real package: it can be imported and has attributes, and cannot be called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "_NoKernel":
        return _named(self._name, name)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{self._name} is a kernel for GPUs; this is RewardPool's stand-in for CPUs")


def _named(owner: str, name: str) -> _NoKernel:
    if name.startswith("__"):  # what Python itself asks of modules and objects
        raise AttributeError(f"{owner} has no {name}")
    return _NoKernel(f"{owner}.{name}")


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every `sgl_kernel.X` importable."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{__name__}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = lambda name: _named(module.__name__, name)  # type: ignore[method-assign]


sys.meta_path.append(_Submodules())


def __getattr__(name: str) -> _NoKernel:
    return _named(__name__, name)


_OPERATORS = torch.library.Library("sgl_kernel", "FRAGMENT")
_OPERATORS.define("init_cpu_threads_env(str cores) -> str")
_OPERATORS.define("initialize(int size, int rank) -> ()")
_OPERATORS.impl("init_cpu_threads_env", lambda cores: "", "CompositeExplicitAutograd")
_OPERATORS.impl("initialize", lambda size, rank: None, "CompositeExplicitAutograd")

"""The code of a function: its module and all that it imports from the user's folders. It is read, never run.

A module is found as Python finds it: in the first folder that has it, as a package before a file, and in several
folders at once where it is a folder without `__init__.py`. Imports count wherever they stand: in a function, under a
condition, in a `try`; and so does `importlib.import_module` of a text that is written down.

What is found in none of the folders is installed, and no part of the code: it changes with the environment. Neither are
RewardPool's own packages, files that are no modules, modules that are only named at run time, and zip files.
"""

import ast
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import all_suffixes
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 << 20


class CodeTooLargeError(Exception):
    """The code has more than `MAX_BYTES`."""


@dataclass(frozen=True)
class Place:
    """A folder in which modules may be: one of those that were given, or one below."""

    folder: int
    path: Path


@dataclass(frozen=True, kw_only=True)
class CodeFile:
    """One module's file."""

    module: str
    place: Place
    content: bytes | None
    """None where it cannot be read."""


@dataclass(frozen=True)
class FunctionCode:
    """All files of a function's code, in the order of their modules' names; none where it is installed."""

    module: str
    files: tuple[CodeFile, ...]

    @property
    def own(self) -> CodeFile | None:
        """The function's own module; None where the folders have none."""
        return next((file for file in self.files if file.module == self.module), None)

    @cached_property
    def digest(self) -> str:
        """Sixteen characters that stand for each byte of it and for each module's name; not for where it is."""
        found = hashlib.sha256()
        for file in self.files:
            content = "unreadable" if file.content is None else hashlib.sha256(file.content).hexdigest()
            found.update(f"{file.place.path.as_posix()}\0{content}\0".encode(errors="surrogateescape"))
        return found.hexdigest()[:16]


def read_code(module: str, folders: Sequence[Path]) -> FunctionCode:
    """Read a module and what it imports, as far as these folders have it; nothing of it is run.

    Args:
        folders: The first that has a module wins. One that does not exist has none.

    Raises:
        CodeTooLargeError: it has more than `MAX_BYTES`; the text names the largest file.
    """
    reader = _Reader(folders)
    waiting = [module]
    while waiting:
        waiting += reader.add(waiting.pop())
    return FunctionCode(module, tuple(sorted(reader.files.values(), key=lambda file: file.module)))


@dataclass(frozen=True)
class _Module:
    file: Place | None
    """None for a folder without `__init__.py`."""
    is_package: bool = False
    inside: tuple[Place, ...] = ()


class _Reader:
    def __init__(self, folders: Sequence[Path]) -> None:
        self.files: dict[str, CodeFile] = {}
        self._folders = folders
        self._modules: dict[str, _Module | None] = {}
        self._sizes: dict[Path, int] = {}

    def add(self, name: str) -> list[str]:
        """Read a module and the packages that it is in; returns the names that they import."""
        imported: list[str] = []
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            within = ".".join(parts[:count])
            module = self._find(within)
            if module is None:
                break
            if module.file is not None and within not in self.files:
                imported += self._read(within, module, module.file)
        return imported

    def _read(self, name: str, module: _Module, place: Place) -> list[str]:
        content = self._content(self._folders[place.folder] / place.path)
        self.files[name] = CodeFile(module=name, place=place, content=content)
        if content is None or place.path.suffix != ".py":
            return []
        try:
            tree = ast.parse(content)
            return list(self._imported(tree, name if module.is_package else name.rpartition(".")[0]))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []  # It is no Python, and says so to whoever imports it.

    def _imported(self, tree: ast.Module, package: str) -> Iterator[str]:
        for name in imports(tree, package):
            if not name.endswith(".*"):
                yield name
                continue
            base = name.removesuffix(".*")
            yield base
            found = self._find(base)
            if found is not None and found.file is not None:
                content = self._content(self._folders[found.file.folder] / found.file.path)
                yield from (f"{base}.{one}" for one in offered(content or b""))

    def _content(self, path: Path) -> bytes | None:
        try:
            self._sizes[path] = path.stat().st_size
            self._refuse_if_too_large()
            content = path.read_bytes()
        except OSError:
            return None
        self._sizes[path] = len(content)
        self._refuse_if_too_large()
        return content

    def _refuse_if_too_large(self) -> None:
        total = sum(self._sizes.values())
        if total > MAX_BYTES:
            largest = max(self._sizes, key=lambda path: self._sizes[path])
            raise CodeTooLargeError(
                f"it and what it imports have {total >> 20} MiB, more than {MAX_BYTES >> 20} MiB, which are copied for"
                f" each revision; the largest file is {largest} with {self._sizes[largest] >> 20} MiB: install it as a"
                " package, or read it as data"
            )

    def _find(self, name: str) -> _Module | None:
        if name not in self._modules:
            self._modules[name] = self._look_up(name)
        return self._modules[name]

    def _look_up(self, name: str) -> _Module | None:
        package, _, last = name.rpartition(".")
        if not last or "/" in last or "\0" in last:
            return None
        if package:
            parent = self._find(package)
            places = parent.inside if parent is not None else ()
        elif name in sys.builtin_module_names or name == "rewardpool" or name.startswith("rewardpool_"):
            return None
        else:
            places = tuple(Place(folder, Path()) for folder in range(len(self._folders)))
        portions = []
        for place in places:
            inside = Place(place.folder, place.path / last)
            if (file := self._file(f"{inside.path}/__init__", place)) is not None:
                return _Module(file, is_package=True, inside=(inside,))
            if (file := self._file(f"{inside.path}", place)) is not None:
                return _Module(file)
            if os.path.isdir(self._folders[place.folder] / inside.path):
                portions.append(inside)
        return _Module(None, is_package=True, inside=tuple(portions)) if portions else None

    def _file(self, stem: str, place: Place) -> Place | None:
        folder = self._folders[place.folder]
        # Of `os.path`, which says no where `Path` raises because it may not look.
        found = (stem + suffix for suffix in all_suffixes() if os.path.isfile(folder / (stem + suffix)))
        return next((Place(place.folder, Path(path)) for path in found), None)


def imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Return the whole names of what a module imports; one that ends in `.*` stands for what a package offers.

    Args:
        package: That it is in; empty for one that is in none.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = _absolute("." * node.level + (node.module or ""), package)
                if base:
                    yield base
                    # Whether `b` of `from a import b` is a module, only the folder says.
                    yield from (f"{base}.{alias.name}" for alias in node.names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                base = _absolute(name, package)
                if base:
                    yield base


def offered(source: bytes) -> tuple[str, ...]:
    """Return what the `__all__` of a package's `__init__.py` names, where it is written down as texts."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names) | ast.Tuple(elts=names)):
                return tuple(one.value for one in names if isinstance(one, ast.Constant) and isinstance(one.value, str))
    return ()


def _absolute(name: str, package: str) -> str:
    """Return the whole name; empty where the package does not exist."""
    try:
        return resolve_name(name, package)
    except ImportError:
        return ""

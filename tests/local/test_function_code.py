"""Which files are a function's code, what stands for them, and the copies of them that revisions are made of."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_local import function_code
from rewardpool_local.code_copies import CodeCopies, CodeGoneError
from rewardpool_local.function_code import CodeTooLargeError, read_code


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(folder: Path, files: Mapping[str, str], module: str = "rewards") -> list[str]:
    """The files of the code, in two folders: `a/` and, after it, `b/`."""
    write(folder, files)
    folders = [folder / "a", folder / "b"]
    code = read_code(module, folders)
    return [f"{folders[file.place.folder].name}/{file.place.path}" for file in code.files]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        pytest.param({"a/rewards.py": "import b", "a/c.py": ""}, [], id="what is not imported"),
        pytest.param({"a/rewards.py": "import b", "b/b.py": "import c", "b/c.py": ""}, ["b/b.py", "b/c.py"], id="on"),
        pytest.param({"a/rewards.py": "import b", "a/b.py": "", "b/b.py": ""}, ["a/b.py"], id="the first folder"),
        pytest.param({"a/rewards.py": "import b", "a/b.py": "import rewards"}, ["a/b.py"], id="a circle"),
        pytest.param({"a/rewards.py": "import b", "a/b/__init__.py": "", "a/b.py": ""}, ["a/b/__init__.py"], id="both"),
        pytest.param(
            {"a/rewards.py": "import b.c.d", "a/b/__init__.py": "", "a/b/c/__init__.py": "", "a/b/c/d.py": ""},
            ["a/b/__init__.py", "a/b/c/__init__.py", "a/b/c/d.py"],
            id="each package above",
        ),
        pytest.param(
            {"a/rewards.py": "from b import c, f", "a/b/__init__.py": "f = 1", "a/b/c.py": "", "a/b/f.pyi": ""},
            ["a/b/__init__.py", "a/b/c.py"],
            id="a module and a name",
        ),
        pytest.param(
            {"a/rewards.py": "import b", "a/b/__init__.py": "from . import c\nfrom .d import e", "a/b/c.py": "",
             "a/b/d.py": "from .. import x"},
            ["a/b/__init__.py", "a/b/c.py", "a/b/d.py"],
            id="relative",
        ),
        pytest.param(
            {"a/rewards.py": "from b import *", "a/b/__init__.py": "__all__ = ['c']", "a/b/c.py": "", "a/b/d.py": ""},
            ["a/b/__init__.py", "a/b/c.py"],
            id="a star",
        ),
        pytest.param(
            {"a/rewards.py": "import b.c, b.d", "a/b/c.py": "", "b/b/d.py": ""}, ["a/b/c.py", "b/b/d.py"], id="portions"
        ),
        pytest.param(
            {"a/rewards.py": "def f():\n try:\n  import b\n except ImportError:\n  if x:\n   import c", "a/b.py": "",
             "a/c.py": ""},
            ["a/b.py", "a/c.py"],
            id="under conditions",
        ),
        pytest.param(
            {"a/rewards.py": "import importlib\nimportlib.import_module('b')\n__import__('../c')\n__import__(d)",
             "a/b.py": "", "c.py": ""},
            ["a/b.py"],
            id="by a text",
        ),
        pytest.param({"a/rewards.py": "import b", "a/b.py": "def ("}, ["a/b.py"], id="no Python"),
        pytest.param({"a/rewards.py": "import b", "a/b.py": "\0"}, ["a/b.py"], id="no text"),
        pytest.param({"a/rewards.py": "import sys, rewardpool", "a/sys.py": "", "a/rewardpool.py": ""}, [], id="ours"),
    ],
)  # fmt: skip
def test_the_code_is_what_a_module_imports_from_the_folders(
    tmp_path: Path, files: Mapping[str, str], code: list[str]
) -> None:
    assert found(tmp_path, files) == sorted([*code, "a/rewards.py"], key=lambda path: path.split("/")[1:])


def test_a_module_that_is_installed_has_no_code(tmp_path: Path) -> None:
    code = read_code("json", [tmp_path])
    assert (code.files, code.own) == ((), None)


def test_a_file_that_may_not_be_read_still_gives_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"rewards.py": "import b", "b.py": ""})
    before = read_code("rewards", [tmp_path]).digest
    whole = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path.name == "b.py":
            raise PermissionError(path)
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    code = read_code("rewards", [tmp_path])
    assert [file.content for file in code.files] == [None, b"import b"]
    assert code.digest != before


def test_code_that_is_too_large_is_refused_by_its_largest_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_code, "MAX_BYTES", 2 << 20)
    write(tmp_path, {"rewards.py": "import b", "b.py": "#" * (3 << 20)})
    with pytest.raises(CodeTooLargeError, match=r"have 3 MiB, more than 2 MiB.*b\.py with 3 MiB"):
        read_code("rewards", [tmp_path])


IMPORTED = ("rewards.py", "part.py", "package/__init__.py", "package/one.py")
OTHERS = ("other.py", "package/two.py", "rewards.txt")


@given(where=st.integers(min_value=0), byte=st.integers(0, 255), name=st.sampled_from([*IMPORTED, *OTHERS]))
def test_each_byte_of_what_is_imported_counts_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, where: int, byte: int, name: str
) -> None:
    folder = tmp_path_factory.mktemp("code")
    write(
        folder,
        {
            "rewards.py": "import part\nfrom package import one\n",
            "part.py": "weight = 1\n",
            "package/__init__.py": "# nothing\n",
            "package/one.py": "def one(): ...\n",
            **dict.fromkeys(OTHERS, "text = 'of another'\n"),
        },
    )
    before = read_code("rewards", [folder]).digest
    content = bytearray((folder / name).read_bytes())
    index = where % len(content)
    same = content[index] == byte
    content[index] = byte
    (folder / name).write_bytes(content)
    changed = read_code("rewards", [folder]).digest != before
    assert changed == (name in IMPORTED and not same)


def test_a_copy_keeps_the_code_and_finds_the_data_beside_it(tmp_path: Path) -> None:
    home, library = tmp_path / "home", tmp_path / "library"
    write(
        home, {"rewards.py": "import package.one", "words.txt": "w", "package/__init__.py": "", "package/one.py": "1"}
    )
    write(home, {"package/two.py": "2", "__pycache__/x.pyc": ""})
    write(library, {"unused.py": ""})
    folders, copies = [library, home], CodeCopies(tmp_path)
    code = read_code("rewards", folders)
    with copies.locked():
        copies.keep(code, folders)
        copies.keep(code, folders)
    write(home, {"rewards.py": "changed", "package/one.py": "changed", "words.txt": "changed"})
    ((copy, original),) = copies.originals(code.digest).items()
    assert original == str(home)
    texts = {name: (Path(copy) / name).read_text() for name in ("rewards.py", "package/one.py", "words.txt")}
    assert texts == {"rewards.py": "import package.one", "package/one.py": "1", "words.txt": "changed"}
    assert (Path(copy) / "package" / "two.py").read_text() == "2"
    assert not (Path(copy) / "__pycache__").exists()


def test_copies_that_are_needed_no_more_go_and_nothing_that_they_link_to(tmp_path: Path) -> None:
    home, copies, digests = tmp_path / "home", CodeCopies(tmp_path), []
    for text in ("1", "2"):
        write(home, {"rewards.py": text, "data/words.txt": "w"})
        code = read_code("rewards", [home])
        with copies.locked():
            copies.keep(code, [home])
        digests.append(code.digest)
    assert copies.others({digests[1]}) == [digests[0]]
    with copies.locked():
        copies.remove([digests[0]])
    assert (copies.others(set()), (home / "data" / "words.txt").exists()) == ([digests[1]], True)
    with pytest.raises(CodeGoneError, match="rewardpool restart"):
        copies.originals(digests[0])

"""What the pages point to is there: other pages, headings, files, tests and make's targets."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.rooms import ROOMS

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
FOLDERS = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)(?:::(\w+))?`")
PYTHON_NAME = re.compile(r"(?:(?<=://)|(?<![\w./+=-]))(rewardpool(?:_\w+)?(?:\.[A-Za-z_]\w*)+)(?::(\w+))?(?![\w/-])")
OTHER_NAMES = {"rewardpool.dev", "rewardpool.spec", "rewardpool.enabled", "rewardpool.rewardpool"}
"""The API's group, fields of the resource, a value of the chart: what begins like the package and is none of it."""
TARGET = re.compile(r"(?<![\w-])make ([a-z0-9]+(?:-[a-z0-9]+)*)(?=[`\s])")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    """The page without its blocks of code, in which brackets are no links and # is no heading."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What the page's headings are called in links, by GitHub's rule; of equal ones the later ones have a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", LINK.sub("", heading).lower()).replace(" ", "-")
        found.add(f"{words}-{seen[words]}" if seen[words] else words)
        seen[words] += 1
    return found


def broken_links(page: Path) -> list[str]:
    """Relative links of the page whose file or heading does not exist."""
    found = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def names_in_code(text: str) -> set[str]:
    """Functions that the file defines, and in a table of plays those it names."""
    return set(re.findall(r"\bdef (\w+)", text)) | set(re.findall(r"\bclass (\w+)", text))


def names_below(tree: ast.AST) -> set[str]:
    """Functions, classes, variables and imports of a module or class, whatever block of it they are in."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add(asname or name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return found


def is_importable(name: str) -> bool:
    """Whether a dotted name is a module of the product, or a name in one; read, since torch or verl may be missing."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        stems = [ROOT / room / "/".join(parts[:end]) for room in ROOMS]
        for file in (file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")):
            if file.is_file():
                return set(parts[end:]) <= names_below(ast.parse(file.read_text()))
    return False


def python_names(page: str) -> set[str]:
    """Names of the product's packages that a page's code has."""
    code = "\n".join(re.findall(r"`[^`\n]+`|^```.*?^```", page, re.MULTILINE | re.DOTALL))
    found = {f"{name}.{function}".rstrip(".") for name, function in PYTHON_NAME.findall(code)}
    return {name for name in found if ".".join(name.split(".")[:2]) not in OTHER_NAMES}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@each_page
def test_every_file_and_test_that_is_named_exists(page: Path) -> None:
    missing = [
        path + (f"::{name}" if name else "")
        for path, name in FILE.findall(page.read_text())
        if not (ROOT / path).exists() or (name and name not in names_in_code((ROOT / path).read_text()))
    ]
    assert missing == []


def rows_without_a_test(page: str) -> list[str]:
    """Rows of tables whose last column is of tests, that name none; but for those that say that nothing stops it."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
        if head[-1] == "its test":
            found += [row[0] for row in rows if "`tests/" not in row[-1] and not row[-2].startswith("nothing")]
    return found


def test_every_attack_has_a_test() -> None:
    page = (ROOT / "docs" / "results" / "attacks.md").read_text()
    assert page.count(" its test |\n") == 3
    assert rows_without_a_test(page) == []


def test_an_attack_without_a_test_is_found() -> None:
    table = "| who | what | its test |\n|---|---|---|\n| a | b | `tests/x.py` |\n| c | d | |\n| e | nothing | |\n"
    assert rows_without_a_test(table) == ["c"]


def uneven_rows(page: str) -> list[str]:
    """Rows of tables that have more or fewer cells than the head of their table."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        cells = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
        found += [row for row, count in zip(table.splitlines(), cells, strict=True) if count != cells[0]]
    return found


@each_page
def test_every_row_of_a_table_has_the_cells_of_its_head(page: Path) -> None:
    assert uneven_rows(prose(page)) == []


def test_a_row_with_a_cell_too_many_is_found() -> None:
    table = "| a | b |\n|---|---|\n| `x\\|y` | 1 |\n| x | y | z |\n"
    assert uneven_rows(table) == ["| x | y | z |"]


@each_page
def test_every_name_of_a_package_that_is_given_exists(page: Path) -> None:
    assert [name for name in sorted(python_names(page.read_text())) if not is_importable(name)] == []


def test_a_name_that_no_package_has_is_found() -> None:
    page = "`rewardpool.Reward` `rewardpool.dev/pool` `python://rewardpool.sandbox.run_code:score` `rewardpool.trl.x`"
    assert sorted(name for name in python_names(page) if not is_importable(name)) == [
        "rewardpool.sandbox.run_code.score",
        "rewardpool.trl.x",
    ]


@each_page
def test_every_target_of_make_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    quoted = " ".join(re.findall(r"`[^`\n]*`|^```.*?^```", page.read_text(), re.MULTILINE | re.DOTALL))
    assert set(TARGET.findall(quoted)) <= targets


@each_page
def test_every_python_example_is_a_script(page: Path) -> None:
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        compile(code, str(page), "exec")


def misused(codes: list[str], folder: Path) -> str:
    """What mypy says of names, attributes and arguments that are not there; "" for nothing."""
    for number, code in enumerate(codes):
        (folder / f"example_{number}.py").write_text(code)
    rooms = os.pathsep.join(str(ROOT / room) for room in ("crds", "runtime", "kube", "trainer_plugin", "trainer"))
    lax = [
        "name-defined",
        "arg-type",
        "return-value",
        "union-attr",
        "assignment",
    ]  # excerpts: what else there is, is not here
    settings = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", "--check-untyped-defs"]
    command = [
        sys.executable,
        "-m",
        "mypy",
        *settings,
        "--no-error-summary",
        *(f"--disable-error-code={one}" for one in lax),
    ]
    done = subprocess.run(
        [*command, f"--cache-dir={ROOT / '.mypy_cache' / 'examples'}", *sorted(folder.glob("example_*.py"))],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "MYPYPATH": rooms},
        check=False,
    )
    return done.stdout + done.stderr


def test_no_python_example_uses_what_is_not_there(tmp_path: Path) -> None:
    typed = r"^```python\n(.*?)^```|^\$ cat > \S+\.py <<'EOF'\n(.*?)^EOF$"
    found = [match for page in PAGES for match in re.findall(typed, page.read_text(), re.MULTILINE | re.DOTALL)]
    assert misused([block or file for block, file in found], tmp_path) == ""


def test_an_attribute_that_is_not_there_is_found(tmp_path: Path) -> None:
    code = 'import rewardpool\nprint(rewardpool.Reward("rl/a").rate([("?", "4")])[0].score)\n'
    assert '"Rating" has no attribute "score"' in misused([code], tmp_path)


def test_the_index_has_every_page_once() -> None:
    links = Counter(link for link in LINK.findall(prose(ROOT / "docs" / "index.md")) if "#" not in link)
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - {"index.md"}
    assert {page: links[page] for page in pages} == dict.fromkeys(pages, 1)


def test_a_link_to_a_heading_that_is_not_there_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](#one-two) [b](#three) [c](other.md) [d](https://example.org)\n")
    assert broken_links(page) == ["#three", "other.md"]


@pytest.mark.parametrize("page", ["README.md", "docs/operator.md"])
def test_a_file_that_a_page_shows_is_the_one_of_the_example(page: str) -> None:
    shown = re.findall(r"^\$ cat (\S+)\n(.*?)(?=^\$ )", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    for name, text in shown:
        assert text.strip() == (ROOT / "examples" / "function" / name).read_text().strip()

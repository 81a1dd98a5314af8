"""The table of rooms in the architecture page, made from the packages: `python docs/rooms.py docs/architecture.md`.

A room is a package of its own: its lines, how many are code, the names that its modules without an underscore define,
the first sentence of its docstring, and which other rooms it imports. What it may import is a contract of `make lint`.
"""

import ast
import io
import sys
import tokenize
import tomllib
from pathlib import Path

import grimp

from rewardpool_api.generated import write_or_check

ROOT = Path(__file__).parents[1]
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
"""Tokens that make no line one of code."""
BEGIN, END = "<!-- rooms: made by `make reference` -->\n", "<!-- end of rooms -->\n"


def rooms() -> list[Path]:
    """The folders of all rooms, in the order of pyproject.toml: one imports those before it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [ROOT / path for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def sentence(room: Path) -> str:
    """What a room is for: the first sentence of its docstring."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def code_lines(text: str) -> int:
    """How many lines of a module are neither blank, nor a comment, nor a docstring's."""
    strings = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in strings:
        if isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def public_names(room: Path) -> int:
    """Return the number of names without an underscore that modules without an underscore define."""
    names: list[str] = []
    for file in room.rglob("*.py"):
        if any(part.startswith("_") and part != "__init__.py" for part in file.relative_to(room).parts):
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.append(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names += [target.id for target in targets if isinstance(target, ast.Name)]
    return sum(not name.startswith("_") for name in names)


def table() -> str:
    """Return the table in Markdown; lines are in hundreds and names in tens, so that it seldom changes."""
    found = rooms()
    graph = grimp.build_graph(*(room.name for room in found))
    lines = ["| room | lines | of code | public names | what it is for | imports |", "|---|---:|---:|---:|---|---|"]
    for room in found:
        modules = [file.read_text() for file in room.rglob("*.py")]
        count, code = sum(len(text.splitlines()) for text in modules), sum(map(code_lines, modules))
        others = [
            f"`{other.name}`"
            for other in found
            if other != room and graph.direct_import_exists(importer=room.name, imported=other.name, as_packages=True)
        ]
        path = room.relative_to(ROOT)
        sizes = f"{round(count, -2):,} | {round(code, -2):,} | {round(public_names(room), -1):,}"
        lines.append(f"| `{path}` | {sizes} | {sentence(room)} | {', '.join(others) or 'none'} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with a new table."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    file = next(argument for argument in sys.argv[1:] if not argument.startswith("-"))
    sys.exit(write_or_check(page(Path(file).read_text()), description=__doc__, target="reference"))

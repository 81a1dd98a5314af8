"""Pages and messages use the field's words: what the glossary replaced does not come back."""

import ast
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("crds", "runtime", "page", "workers", "operator", "local", "simulator", "trainer_plugin", "trainer", "cli")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = [module for room in ROOMS for module in sorted((ROOT / room).rglob("*.py"))]
REPLACED = re.compile(
    r"\b(mend(s|ed|ing)?|reckon(s|ed|ing)?|on paper|dead band|in so many words|stands? still|hides? behind|"
    r"(is|are|be|been) (told|held)|as it should be|for machines\.|no program|"
    r"deadBand|idleSeconds|stabilizationSeconds|FiguresMissing)\b",
    re.IGNORECASE,
)
REPLACED_NAMES = {"aside", "board", "doomed", "obeyed", "retire", "retired", "told", "upkeep", "witness"}


def messages(module: Path) -> list[str]:
    """The texts of a module but its docstrings, which nobody sees who uses it."""
    tree = ast.parse(module.read_text())
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_none_of_the_replaced_words(page: Path) -> None:
    assert [found.group() for found in REPLACED.finditer(page.read_text())] == []


def test_no_message_has_one_of_the_replaced_words() -> None:
    found = {
        str(module.relative_to(ROOT)): text for module in MODULES for text in messages(module) if REPLACED.search(text)
    }
    assert found == {}


def names(module: Path) -> set[str]:
    """The identifiers of a module."""
    with tokenize.open(module) as source:
        return {token.string for token in tokenize.generate_tokens(source.readline) if token.type == tokenize.NAME}


def test_no_name_has_one_of_the_replaced_words() -> None:
    found = {
        f"{module.relative_to(ROOT)}: {name}"
        for module in MODULES
        for name in names(module)
        if REPLACED_NAMES & set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))
    }
    assert found == set()

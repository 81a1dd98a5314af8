"""Pages and messages use the field's words: what the glossary replaced does not come back."""

import ast
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("crds", "runtime", "page", "workers", "operator", "local", "simulator", "trainer_plugin", "trainer", "cli")
GLOSSARY = ROOT / "docs" / "glossary.md"
TABLE = "## Words that are not used"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for folder in ("docs", "examples", "charts") for page in sorted((ROOT / folder).rglob("*.md"))),
    *sorted((ROOT / "charts").rglob("*.txt")),
    *sorted((ROOT / "charts").rglob("*.yaml")),
]
MODULES = [module for room in ROOMS for module in sorted((ROOT / room).rglob("*.py"))]


def replaced_words() -> re.Pattern[str]:
    """The glossary's table of words that are not used, as one pattern."""
    rows = GLOSSARY.read_text().partition(TABLE)[2].splitlines()
    words = [word for row in rows if row.startswith("| `") for word in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert words, f"no table below {TABLE!r} in {GLOSSARY}"
    forms = [re.escape(word).replace(r"\ ", r"\s+").replace(r"\*", r"\w*") for word in words]
    forms = [re.sub(r"^be\b", "(am|is|are|was|were|be|been)", form) for form in forms]
    return re.compile(rf"\b({'|'.join(forms)})(?!\w)", re.IGNORECASE)


REPLACED = replaced_words()
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_none_of_the_replaced_words(page: Path) -> None:
    assert [found.group() for found in REPLACED.finditer(page.read_text().partition(TABLE)[0])] == []


@pytest.mark.parametrize(
    "text",
    ["It mends them.", "a pool is told", "what they were\nheld to", "Dead band", "For machines.", "it asks for 8"],
)
def test_a_replaced_word_is_found(text: str) -> None:
    assert REPLACED.search(text)


@pytest.mark.parametrize("text", ["recommended", "what to amend", "he told them", "formachines", "she asked for it"])
def test_other_words_are_not(text: str) -> None:
    assert not REPLACED.search(text)


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

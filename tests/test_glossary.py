"""Pages, messages, docstrings and comments use the field's words: what they replaced does not come back."""

import ast
import re
import tokenize
from pathlib import Path

import pytest
from support.rooms import ROOMS

ROOT = Path(__file__).parents[1]
INSTEAD = {
    "mend*": "repair, fix",
    "put right": "repair, fix",
    "reckon*": "calculate, count",
    "on paper": "simulated",
    "dead band": "tolerance",
    "deadBand": "tolerance",
    "stabilizationSeconds": "stabilizationWindowSeconds",
    "FiguresMissing": "MetricsUnavailable",
    "asks for": "needs, requests",
    "asking for": "needs, requests",
    "be held": "what is done, by whom",
    "be told": "what is done, by whom",
    "be heard": "what is done, by whom",
    "stand* still": "stops",
    "stand* beside": "is next to",
    "hide* behind": "overlaps with",
    "measured beside": "compared with",
    "compared beside": "compared with",
    "beside ours": "compared with",
    "beside the others": "compared with",
    "in so many words": "exactly",
    "in force": "in effect",
    "as it should be": "healthy",
    "For machines.": "as JSON",
    "no program": "not an executable",
}
"""Words that are not used, and those that are; `*` stands for any ending, `be` for all its forms."""
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for folder in ("docs", "examples", "charts") for page in sorted((ROOT / folder).rglob("*.md"))),
    *sorted((ROOT / "charts").rglob("*.txt")),
    *sorted((ROOT / "charts").rglob("*.yaml")),
]
READ_WHOLE = ("trainer",)
"""Rooms whose docstrings and comments are read too, not only their messages; a room joins when its words are done."""
MODULES = [module for room in ROOMS for module in sorted((ROOT / room).rglob("*.py"))]


def replaced_words() -> re.Pattern[str]:
    """The words that are not used, as one pattern."""
    forms = [re.escape(word).replace(r"\ ", r"\s+").replace(r"\*", r"\w*") for word in INSTEAD]
    forms = [re.sub(r"^be\b", "(am|is|are|was|were|be|been)", form) for form in forms]
    return re.compile(rf"\b({'|'.join(forms)})(?!\w)", re.IGNORECASE)


REPLACED = replaced_words()
REPLACED_NAMES = {"aside", "board", "doomed", "obeyed", "retire", "retired", "told", "upkeep", "witness"}


def messages(module: Path) -> list[str]:
    """The texts of a module but its docstrings."""
    tree = ast.parse(module.read_text())
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_none_of_the_replaced_words(page: Path) -> None:
    assert [found.group() for found in REPLACED.finditer(page.read_text())] == []


@pytest.mark.parametrize(
    "text",
    ["It mends them.", "a pool is told", "what they were\nheld to", "Dead band", "For machines.", "it asks for 8"],
)
def test_a_replaced_word_is_found(text: str) -> None:
    assert REPLACED.search(text)


@pytest.mark.parametrize("text", ["recommended", "what to amend", "he told them", "formachines", "she asked for it"])
def test_other_words_are_not(text: str) -> None:
    assert not REPLACED.search(text)


def prose(module: Path) -> list[str]:
    """The docstrings and comments of a module; comments on successive lines are one text."""
    with tokenize.open(module) as source:
        comments = [token for token in tokenize.generate_tokens(source.readline) if token.type == tokenize.COMMENT]
    blocks: list[list[str]] = []
    end = -1
    for token in comments:
        line = token.start[0]
        if line == end + 1:
            blocks[-1].append(token.string.lstrip("# "))
        else:
            blocks.append([token.string.lstrip("# ")])
        end = line
    bare = [node.value for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Expr)]
    docstrings = [node.value for node in bare if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [*docstrings, *(" ".join(block) for block in blocks)]


# Openings and words that say less than the field's: a docstring begins with a verb or a noun ("Return whether ...").
CONVERSATIONAL = re.compile(
    r"\A(What|How|Of|Who)\b|: (Of|That|For|Whose) |(?i:\b(nobody|somebody|whoever|no program)\b)"
    r"|\b(is|are) no (?!longer\b)\w"
)
THERE_IS_NO = re.compile(r"\bthere (is|are) no \w", re.IGNORECASE)


@pytest.mark.parametrize("room", READ_WHOLE)
def test_docstrings_and_comments_of_a_room_have_none_of_the_replaced_words(room: str) -> None:
    texts = {module: [*messages(module), *prose(module)] for module in sorted((ROOT / room).rglob("*.py"))}
    found = [
        f"{module.relative_to(ROOT)}: {match.group()!r} in {text!r}"
        for module, room_texts in texts.items()
        for text in room_texts
        for match in (REPLACED.search(text), CONVERSATIONAL.search(THERE_IS_NO.sub("", text)))
        if match is not None
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["What a run did.", "Of the job.", "plan: Of the job.", "it is no X", "nobody reads it", "steps: That it has."],
)
def test_a_conversational_docstring_is_found(text: str) -> None:
    assert CONVERSATIONAL.search(text)


@pytest.mark.parametrize("text", ["Return what was read.", "it is no longer kept", "Number of steps.", "Offset of it."])
def test_a_plain_docstring_is_not(text: str) -> None:
    assert not CONVERSATIONAL.search(text)


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

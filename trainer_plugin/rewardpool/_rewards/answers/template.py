"""Prompts with named fields, such as `{response}`: like `str.format`, without what makes that unsafe.

A field is a name, or one entry of `extra_info`: no attributes, no other indexes, no conversions, no format
specifications. Values are put in once and never read again, so a response with braces in it is only text.
"""

import re
import string
from collections.abc import Callable, Collection
from typing import TypeVar

T = TypeVar("T")

_EXTRA = re.compile(r"extra_info\[([^\[\]]+)\]")


class Template:
    """A checked prompt.

    Raises ValueError where it is not well formed, has a field that does not exist, or lacks one of `required`.
    """

    def __init__(self, text: str, *, fields: Collection[str], required: Collection[str] = ()) -> None:
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"is not a template ({error}); write {{{{ and }}}} for braces that are text") from None
        self._pieces: list[tuple[str, str | None]] = []
        for literal, field, specification, conversion in parsed:
            if field is not None and (specification or conversion):
                raise ValueError(f"has more in {{{field}}} than a bare name: no `:` and no `!`")
            if field is not None and field not in fields and not _EXTRA.fullmatch(field):
                known = ", ".join(sorted(fields))
                raise ValueError(f"has the unknown field {{{field}}}; there are {known} and extra_info[NAME]")
            self._pieces.append((literal, field))
        if missing := sorted(set(required) - self.fields):
            raise ValueError(f"must have the field {{{missing[0]}}}")

    @property
    def fields(self) -> set[str]:
        return {field for _, field in self._pieces if field is not None}

    def pieces(self, value_of: Callable[[str], T]) -> list[str | T]:
        """The prompt's own words, and `value_of(field)` in the place of every field."""
        found: list[str | T] = []
        for literal, field in self._pieces:
            found.append(literal)
            if field is not None:
                found.append(value_of(field))
        return found

    def render(self, value_of: Callable[[str], str]) -> str:
        return "".join(self.pieces(value_of))


def extra_name(field: str) -> str | None:
    """The NAME of `extra_info[NAME]`; None for any other field."""
    found = _EXTRA.fullmatch(field)
    return found[1] if found else None

"""Base of all API models, and rules that span fields.

A rule is written once, with its CEL expression for the API server, the same test in Python for one machine, and the one
message both print. `schema.py` puts the expressions into the CRD; `ApiModel` runs the Python ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

WITHOUT_RULES: Final[dict[str, Any]] = {"rules": False}
"""As the context of a validation: fields are looked at, and rules over several of them are not."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A validation over several fields of one model."""

    cel: str
    """Common Expression Language over `self`, true when the object is right."""
    message: str
    """Names the field by its path and says what to do."""
    holds: Callable[[Any], bool]
    """The same test in Python, over the model."""


class ApiModel(BaseModel):
    """A part of the API: camelCase on the wire, unknown fields refused, docstrings as descriptions."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _rules_hold(self, info: ValidationInfo) -> Self:
        if info.context == WITHOUT_RULES:
            return self
        for rule in self.rules:
            if not rule.holds(self):
                raise PydanticCustomError("rule", "{message}", {"message": rule.message})
        return self

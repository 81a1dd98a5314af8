"""Field types that several parts of the API have."""

from typing import Annotated

from pydantic import Field

ShortText = Annotated[str, Field(min_length=1, max_length=253)]
"""A name, and nothing longer."""
Seconds = Annotated[int, Field(ge=0, le=86_400)]
"""A duration of at most a day."""

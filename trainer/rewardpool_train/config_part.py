"""What the parts of a training job's config have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ConfigPart(BaseModel):
    """A section of the file: a field that it does not know is a mistake, and nothing changes it once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

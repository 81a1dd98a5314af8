"""Config of a ledger: the scores that are kept, and the folder."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator


class LedgerConfig(BaseModel):
    """A record of each score, in files of JSON lines."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    folder: Path
    """Local folder of the files, which is made where there is none. Each process writes its own."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the prompts whose scores are kept: all responses to a prompt, or none of them."""
    text: bool = False
    """Keep prompts, responses and what else is known of them, for `rewardpool rescore`, and not only their hashes."""
    format: Literal["jsonl", "parquet"] = "jsonl"
    """`parquet` puts a Parquet file in the place of each file of JSON lines that is full, and of the last one at the
    end."""
    file_mib: Annotated[int, Field(ge=1, le=65_536)] = 64
    """A file of so many MiB is followed by another one."""

    @field_validator("format")
    @classmethod
    def _can_be_written(cls, given: str) -> str:
        if given == "parquet" and find_spec("pyarrow") is None:
            raise ValueError("takes pyarrow: pip install 'rewardpool[parquet]', or use jsonl")
        return given


def _as_mapping(value: Any) -> Any:
    return {"folder": value} if isinstance(value, str | Path) else value


LedgerField = Annotated[LedgerConfig, BeforeValidator(_as_mapping)]

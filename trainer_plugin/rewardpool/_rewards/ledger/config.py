"""Config of a ledger: the scores that are kept, and the folder."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from rewardpool._rewards.ledger import s3


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
    upload: Annotated[str, Field(pattern=s3.TARGET)] | None = None
    """`s3://BUCKET/PREFIX`, to which files are moved when they are full, and the last one at the end. Takes boto3,
    which reads credentials, region and endpoint from its environment."""

    @field_validator("format")
    @classmethod
    def _can_be_written(cls, given: str) -> str:
        if given == "parquet" and find_spec("pyarrow") is None:
            raise ValueError("takes pyarrow: pip install 'rewardpool[parquet]', or use jsonl")
        return given

    @field_validator("upload")
    @classmethod
    def _can_be_uploaded(cls, given: str | None) -> str | None:
        if given is not None and find_spec("boto3") is None:
            raise ValueError("takes boto3: pip install 'rewardpool[download]', or leave it out")
        return given


def _as_mapping(value: Any) -> Any:
    return {"folder": value} if isinstance(value, str | Path) else value


LedgerField = Annotated[LedgerConfig, BeforeValidator(_as_mapping)]

"""Where a model comes from: the `spec.model.source` URL and its parts."""

import re
from dataclasses import dataclass
from typing import Final, Literal

Scheme = Literal["hf", "s3", "pvc", "file", "python"]
FUNCTION_SCHEME: Final = "python://"
"""In front of `MODULE:FUNCTION`, for a Python function in place of a model."""

SOURCE_PATTERN: Final = (
    r"^(hf://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?/?"
    r"|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/]+)+/?"
    r"|pvc://[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*(/[^/]+)*/?"
    r"|file://(/[^/]+)+/?"
    r"|python://[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*)$"
)
"""RE2 as well as Python `re`: the API server and one machine match the same expression."""

SOURCE_MESSAGE: Final = (
    "spec.model.source must be hf://ORG/NAME, s3://BUCKET/PREFIX, pvc://CLAIM or pvc://CLAIM/PATH, "
    "file:///ABSOLUTE/PATH or python://MODULE:FUNCTION"
)


@dataclass(frozen=True)
class ModelSource:
    """A parsed source.

    `location` is the hub's repository for `hf`, `BUCKET/PREFIX` for `s3`, the absolute path for `file`, the path inside
    the claim (no leading slash; empty for its root) for `pvc`, and `module:function` for `python`. None ends with a
    slash. `claim` is set for `pvc` alone.
    """

    scheme: Scheme
    location: str
    claim: str | None = None

    @property
    def is_downloaded(self) -> bool:
        """True if the files come over a network, and must be there before the engine starts."""
        return self.scheme in ("hf", "s3")


def is_source(url: str) -> bool:
    """True if the URL has one of the forms; `..` as a path segment is refused."""
    return re.fullmatch(SOURCE_PATTERN, url) is not None and "/../" not in f"{url}/"


def is_function(url: str) -> bool:
    """True if the URL is that of a Python function."""
    return url.startswith(FUNCTION_SCHEME)


def parse_source(url: str) -> ModelSource:
    """Split a source URL.

    Raises:
        ValueError: not one of the forms; the text says which those are.
    """
    if not is_source(url):
        raise ValueError(f"{SOURCE_MESSAGE}, not {url!r}")
    scheme, _, rest = url.rstrip("/").partition("://")
    match scheme:
        case "hf":
            return ModelSource("hf", rest)
        case "s3":
            return ModelSource("s3", rest)
        case "pvc":
            claim, _, path = rest.partition("/")
            return ModelSource("pvc", path, claim)
        case "file":
            return ModelSource("file", rest)
        case _:
            return ModelSource("python", rest)

"""Pictures in a conversation, as a judge is sent them: an `image_url` part with an address, or with the bytes.

A picture that cannot be sent is an error with its place in the conversation: a model that is shown a placeholder in its
place would judge something else.
"""

import base64
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

# Types of a message's blocks that are pictures.
PICTURE_TYPES = ("image", "image_url")
# All data: URLs of one question together; a worker accepts 16 MiB.
MAX_PICTURE_BYTES = 14 * 1024 * 1024
_DATA_URL = re.compile(r"data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]+=*", re.IGNORECASE)
_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "png"),
    (re.compile(rb"\xff\xd8\xff"), "jpeg"),
    (re.compile(rb"GIF8[79]a"), "gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "webp"),
)
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA"})


@dataclass(frozen=True)
class Picture:
    """A picture by its http(s) or data: URL."""

    url: str

    @property
    def embedded_bytes(self) -> int:
        """Bytes that it adds to a request beside an address."""
        return len(self.url) if self.url.startswith("data:") else 0

    def to_part(self) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": self.url}}


def picture_of(block: Mapping[str, Any]) -> Picture:
    """Return the picture of a message's block.

    Args:
        block: `{"type": "image_url", "image_url": {"url": URL}}`, or `{"type": "image"}` with the picture as `image`,
            `bytes` or `url`: encoded bytes, a PIL image (sent as PNG, without loss) or a URL.

    Raises:
        ValueError: It is none that can be sent; the text says what it is.
    """
    names = ("image_url",) if block.get("type") == "image_url" else ("image", "bytes", "url")
    given = next((block[name] for name in names if block.get(name) is not None), None)
    if isinstance(given, Mapping):
        given = next((given[name] for name in ("url", "bytes") if given.get(name) is not None), None)
    if isinstance(given, str):
        return Picture(_checked_url(given))
    if isinstance(given, bytes | bytearray | memoryview):
        return _embedded(bytes(given))
    if hasattr(given, "save") and hasattr(given, "mode"):
        return _embedded(_as_png(given))
    raise ValueError(f"has no picture but {type(given).__name__}: give a URL, the file's bytes or a PIL image")


def _checked_url(url: str) -> str:
    if _DATA_URL.fullmatch(url):
        return url
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"is {url!r:.60}, which is not an http(s) or data:image/…;base64 URL: a worker does not see this machine's "
            "files, so give the file's bytes or a PIL image"
        )
    if parts.username or parts.password:
        raise ValueError("is a URL with credentials in it, which would end up in logs: give the file's bytes")
    return url


def _embedded(content: bytes) -> Picture:
    kind = next((kind for signature, kind in _SIGNATURES if signature.match(content)), None)
    if kind is None:
        raise ValueError(f"has {len(content)} bytes that are no PNG, JPEG, GIF or WebP")
    return Picture(f"data:image/{kind};base64,{base64.b64encode(content).decode()}")


def _as_png(image: Any) -> bytes:
    written = io.BytesIO()
    try:
        (image if image.mode in _PNG_MODES else image.convert("RGB")).save(written, format="PNG")
    except (OSError, ValueError) as error:
        raise ValueError(f"is a PIL image that cannot be written: {error}") from error
    return written.getvalue()

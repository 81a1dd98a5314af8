"""Reading what a worker or a router answers: never more of it than an honest one would say.

Pods run models, and code, of whoever may make pools; what they answer must not fill the operator's memory.
"""

from typing import Final

import aiohttp

EXCERPT: Final = 300  # characters


class AnswerTooLargeError(ValueError):
    """An answer is larger than any honest one."""


async def read_text(response: aiohttp.ClientResponse, *, limit_bytes: int) -> str:
    """The whole answer as text; bytes that are no UTF-8 are replaced.

    Raises:
        AnswerTooLargeError: it has more bytes than the limit.
    """
    content = bytearray()
    async for part in response.content.iter_any():
        content += part
        if len(content) > limit_bytes:
            raise AnswerTooLargeError(f"the answer has more than {limit_bytes} bytes")
    return content.decode(errors="replace")


async def read_excerpt(response: aiohttp.ClientResponse) -> str:
    """The beginning of an answer, for a message."""
    return (await response.content.read(4 * EXCERPT)).decode(errors="replace")[:EXCERPT]

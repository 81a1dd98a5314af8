"""A pool's manifest, read with the viewer's own token: the operator gives the page no whole spec."""

from typing import Any, Final

import orjson

from rewardpool_kube.resources import POOLS, Object
from rewardpool_operator.kubernetes.page.api_server import ApiServer, refusal_of
from rewardpool_page.source import NotShownError
from rewardpool_runtime.bounded import AnswerTooLargeError, read_text

LIMIT_BYTES: Final = 4 << 20


async def stored_manifest(server: ApiServer, namespace: str, pool: str, *, token: str) -> Object:
    """Return the pool's object; by a list of one, since the right by which the page shows pools is to list them.

    Raises:
        NotShownError: there is none, or the token may not read it; the API server's words say so.
        OSError: the API server does not answer.
    """
    query = {"fieldSelector": f"metadata.name={pool}", "limit": "1"}
    async with server.request(POOLS.path(namespace), token=token, query=query) as response:
        if response.status != 200:
            raise NotShownError(await refusal_of(response) or f"no manifest ({response.status})")
        try:
            found: Any = orjson.loads(await read_text(response, limit_bytes=LIMIT_BYTES))
            (stored,) = found["items"]
        except AnswerTooLargeError as error:
            raise NotShownError(str(error)) from None
        except (LookupError, TypeError, ValueError):
            raise NotShownError(f"there is no pool {namespace}/{pool}") from None
    # Items of a list do not say what they are.
    return {"apiVersion": found.get("apiVersion"), "kind": str(found.get("kind")).removesuffix("List"), **stored}

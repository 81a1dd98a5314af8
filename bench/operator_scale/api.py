"""The API server for everybody but the operator: makes objects as fast as it takes them, and reads them back.

Plain JSON over one pooled session and no model of anything: the bare client of the comparison shall cost nothing.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson

from cluster.control_plane import ControlPlane
from cluster.processes import ClusterError

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

AT_A_TIME: Final = 64
"""Requests; more of them make the API server no faster."""
TIMEOUT: Final = aiohttp.ClientTimeout(total=120)


class Followed:
    """The objects of a collection as a watch tells of them, by name."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.failure: BaseException | None = None
        """Why nothing more is known."""

    def count(self, what: Callable[[Object], bool]) -> int:
        """How many of them are that; raises what ended the watch."""
        if self.failure is not None:
            raise self.failure
        return sum(map(what, self.objects.values()))

    def take(self, event: Mapping[str, Any]) -> None:
        """A watch event. Raises ClusterError where it is none of an object."""
        if event["type"] == "ERROR":
            raise ClusterError(f"a watch failed: {event['object'].get('message')}")
        name = event["object"]["metadata"]["name"]
        if event["type"] == "DELETED":
            self.objects.pop(name, None)
        else:
            self.objects[name] = event["object"]


class Api:
    """The API server of a control plane, as its administrator; an async context manager."""

    def __init__(self, plane: ControlPlane) -> None:
        self._url = plane.url
        self._headers = {"Authorization": f"Bearer {plane.admin_token}"}
        self._trust = ssl.create_default_context(cafile=str(plane.authority.certificate))
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=AT_A_TIME, ssl=self._trust)
        self._session = aiohttp.ClientSession(
            self._url, headers=self._headers, connector=connector, timeout=TIMEOUT, raise_for_status=True
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def create_all(self, manifests: Iterable[tuple[str, Object]]) -> None:
        """Make all objects, each given with the path of its collection; the first that is refused is raised."""
        waiting = iter(manifests)

        async def one_caller() -> None:
            for path, manifest in waiting:
                async with self._session.post(path, json=manifest):
                    pass

        async with asyncio.TaskGroup() as callers:
            for _ in range(AT_A_TIME):
                callers.create_task(one_caller())

    async def items(self, path: str) -> list[Object]:
        """The objects of a collection."""
        async with self._session.get(path) as answer:
            found: list[Object] = (await answer.json())["items"]
            return found

    @asynccontextmanager
    async def following(self, path: str) -> AsyncIterator[Followed]:
        """A collection that is watched within the block; it costs what changes, where a list has all every time."""
        followed = Followed()
        version = await self._list(path, followed)
        task = asyncio.create_task(self._follow(path, version, followed))
        try:
            yield followed
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _list(self, path: str, followed: Followed) -> str:
        async with self._session.get(path) as answer:
            listed = await answer.json()
        followed.objects = {item["metadata"]["name"]: item for item in listed["items"]}
        return str(listed["metadata"]["resourceVersion"])

    async def _follow(self, path: str, version: str, followed: Followed) -> None:
        try:
            while True:
                since = {"watch": "true", "resourceVersion": version}
                async with self._session.get(path, params=since, timeout=aiohttp.ClientTimeout()) as answer:
                    async for line in answer.content:
                        followed.take(orjson.loads(line))
                # Whoever does not keep up is cut off; a list has what was missed.
                version = await self._list(path, followed)
        except Exception as error:  # for whoever counts
            followed.failure = error

    async def delete(self, path: str) -> None:
        """Delete the object of that path, in the background."""
        async with self._session.delete(path, params={"propagationPolicy": "Background"}):
            pass

    async def is_gone(self, path: str) -> bool:
        """Whether there is no object of that path."""
        async with self._session.get(path, raise_for_status=False) as answer:
            return answer.status == 404

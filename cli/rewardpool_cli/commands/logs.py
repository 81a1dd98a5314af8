"""`rewardpool logs`: what the workers and routers of a pool print, each line behind the name of who printed it.

Bounded: the last lines of each container unless more are named, and no more than `MAX_STREAMS` containers at a time.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from rewardpool_api import names
from rewardpool_cli import screens
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.options import Context, Local, Namespace, PoolName
from rewardpool_cli.targets import Target, Where, locate, pool_here
from rewardpool_local.process import tail

if TYPE_CHECKING:
    from rewardpool_cli.cluster import Cluster

MAX_STREAMS: Final = 32
LOOK_SECONDS: Final = 3.0
TAIL_BYTES: Final = 1 << 20

_DURATION: Final = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
_STYLES: Final = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")


class Component(StrEnum):
    """Part of a pool whose logs are shown."""

    WORKER = names.COMPONENT_WORKER
    ROUTER = names.COMPONENT_ROUTER


def logs(
    name: PoolName,
    component: Annotated[Component | None, typer.Option("--component", "-c", help="Default: both.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until interrupted.")] = False,
    tail: Annotated[int, typer.Option(min=0, help="Lines of each container.")] = 100,
    since: Annotated[str | None, typer.Option(help="Not older than this: 90s, 10m, 1h30m. In a cluster.")] = None,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the start before. In a cluster.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    local: Local = None,
) -> None:
    """Show the logs of a pool's workers and routers.

    Example: rewardpool logs rl/helpfulness --component worker -f --since 10m
    """
    target = locate(name, Where(namespace=namespace, context=context, local=local))
    if target.is_local:
        if since is not None or previous:
            raise RefusedError("a process of this machine has one log, without times: drop --since and --previous")
        asyncio.run(_of_this_machine(target, component, lines=tail, follows=follow))
        return
    query = {"tailLines": str(tail)} | ({"sinceSeconds": str(seconds_of(since))} if since else {})
    query |= ({"previous": "true"} if previous else {}) | ({"follow": "true"} if follow else {})
    asyncio.run(_of_cluster(target, component, query, follows=follow))


def seconds_of(duration: str) -> int:
    """Seconds of `90s`, `10m`, `1h30m` or a bare number.

    Raises:
        RefusedError: it is none of these.
    """
    found = _DURATION.fullmatch(duration)
    hours, minutes, rest = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    seconds = 3600 * hours + 60 * minutes + rest
    if seconds <= 0:
        raise RefusedError(f"--since {duration} is not a time: write 90s, 10m or 1h30m")
    return seconds


class Printer:
    """Writes lines behind the name of who printed them, each name in a colour of its own."""

    def __init__(self) -> None:
        self._free = cycle(_STYLES)
        self._styles: dict[str, str] = {}

    def __call__(self, who: str, line: str) -> None:
        if who not in self._styles:
            self._styles[who] = next(self._free)
        text = Text.assemble((f"{who} ", self._styles[who])) + Text.from_ansi(line)
        screens.out.print(text, soft_wrap=True)


async def _of_this_machine(target: Target, component: Component | None, *, lines: int, follows: bool) -> None:
    folder, printer = pool_here(target.name, target.namespace).logs, Printer()
    read: dict[Path, int] = {}
    while True:
        for file in sorted(folder.glob("*.log")):
            if component is not None and not file.stem.startswith(component):
                continue
            before = read.get(file)
            text, read[file] = _text_of(file, before, lines)
            for line in text:
                printer(file.stem, line)
        if not follows:
            return
        await asyncio.sleep(1)


def _text_of(file: Path, before: int | None, lines: int) -> tuple[list[str], int]:
    """The lines since the last look (or the last ones, at the first), and where the next look begins."""
    size = file.stat().st_size
    if before is None:
        found = tail(file, TAIL_BYTES).splitlines()
        return found[-lines:] if lines else [], size
    begin = before if before <= size else 0
    with file.open("rb") as log:
        log.seek(begin)
        data = log.read(TAIL_BYTES)
    # A line that is half written is read at the next look.
    complete = data[: data.rfind(b"\n") + 1]
    return complete.decode(errors="replace").splitlines(), begin + len(complete)


@dataclass(frozen=True)
class LogSource:
    """A container of which there is, or was, a log."""

    pod: str
    container: str
    start: str
    who: str


def sources_of(pods: Iterable[dict[str, Any]], component: Component | None, *, previous: bool) -> Iterator[LogSource]:
    """Every container that has started (or ended once, for `previous`), in the order of the pods' names."""
    for pod in sorted(pods, key=lambda found: str(found["metadata"]["name"])):
        part = pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT)
        if part not in (names.COMPONENT_WORKER, names.COMPONENT_ROUTER) or component not in (None, part):
            continue
        status = pod.get("status", {})
        for found in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
            state, name = found.get("state", {}), found["name"]
            has_log = bool(found.get("lastState")) if previous else "waiting" not in state or found.get("restartCount")
            if has_log:
                who = pod["metadata"]["name"] if name == part else f"{pod['metadata']['name']}/{name}"
                yield LogSource(pod["metadata"]["name"], name, str(found.get("containerID", "")), who)


async def _of_cluster(target: Target, component: Component | None, query: dict[str, str], *, follows: bool) -> None:
    from rewardpool_cli.cluster import connect  # slow to import
    from rewardpool_kube.resources import PODS

    async with connect(target) as cluster:
        name = (await cluster.pool(str(target.name))).metadata.name
        streams: dict[LogSource, asyncio.Task[None]] = {}
        printer = Printer()
        try:
            while True:
                pods = await cluster.kube.list(PODS, cluster.namespace, selector=f"{names.LABEL_POOL}={name}")
                found = list(sources_of(pods, component, previous="previous" in query))
                _begin(cluster, [source for source in found if source not in streams], streams, query, printer)
                if not streams and not follows:
                    screens.err.print(f"no container of {name} has a log yet; `explain {name}` says why", markup=False)
                if not follows:
                    await asyncio.gather(*streams.values())
                    return
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for stream in streams.values():
                stream.cancel()
            await asyncio.gather(*streams.values(), return_exceptions=True)


def _begin(
    cluster: "Cluster",
    sources: list[LogSource],
    streams: dict[LogSource, asyncio.Task[None]],
    query: dict[str, str],
    printer: Printer,
) -> None:
    room = MAX_STREAMS - sum(not stream.done() for stream in streams.values())
    for source in sources[:room]:
        streams[source] = asyncio.create_task(_copy(cluster, source, query, printer))
    if sources[room:]:
        left = ", ".join(source.who for source in sources[room : room + 3])
        screens.err.print(
            f"{len(sources) - room} containers are left out, such as {left}; use --component", markup=False
        )


async def _copy(cluster: "Cluster", source: LogSource, query: dict[str, str], printer: Printer) -> None:
    from rewardpool_kube.errors import KubeError

    asked = {**query, "container": source.container}
    try:
        async for line in cluster.kube.log_lines(cluster.namespace, source.pod, query=asked, follows="follow" in query):
            printer(source.who, line)
    except KubeError as error:
        if error.status == 403:
            raise
        # One pod that is gone or not yet there does not end the others' logs.
        screens.err.print(f"{source.who}: {error}", markup=False, soft_wrap=True)

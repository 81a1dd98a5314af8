"""The operator on Kubernetes as a process: kopf's frame around `kubernetes/manager.py`.

kopf brings signals and the order of starting and stopping, and has no handler of any object: pools are watched by the
same reflectors as what they own. One odd answer to a watch of kopf's ends the process, what was deleted while such a
watch was broken is never noticed, and nothing shows that one is refused. kopf reads the list of APIs at the start.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast

import aiohttp
import kopf

from rewardpool_api import names
from rewardpool_kube.client import Kube
from rewardpool_kube.configuration import load_configuration
from rewardpool_kube.errors import CredentialsError, KubeError, KubeUnreachableError
from rewardpool_kube.resources import POOLS
from rewardpool_operator import front, logs, operator_socket
from rewardpool_operator.front import Ports
from rewardpool_operator.kubernetes.cache.reflector import NO_CRD, EtcdRestoredError
from rewardpool_operator.kubernetes.leader import Acting, Leadership
from rewardpool_operator.kubernetes.manager import Manager
from rewardpool_operator.kubernetes.page.api_server import Address
from rewardpool_operator.kubernetes.page.offer import Offer
from rewardpool_operator.kubernetes.settings.namespace_budgets import NamespaceBudgets
from rewardpool_operator.kubernetes.settings.operator_identity import OperatorIdentity
from rewardpool_operator.kubernetes.settings.pool_defaults import PoolDefaults
from rewardpool_operator.kubernetes.workload.images import own_image
from rewardpool_operator.logs import LogFormat
from rewardpool_operator.metrics import METRICS
from rewardpool_operator.operator_socket import HEALTH_PATH, POOLS_PATH, Answers

log = logging.getLogger(__name__)
T = TypeVar("T")

LONGEST_BACKOFF_SECONDS: Final = 15.0
# By its defaults Python's garbage collector goes through all that watches keep for good again and again, for a few
# hundred new objects each time; next to nothing here makes cycles.
GC_THRESHOLDS: Final = (20_000, 20, 20)
RUNNING: Final = "the operator runs"


def wiring(running: "asyncio.Task[None]") -> kopf.OperatorRegistry:
    """The handlers: where the cluster is, and what ends with the process."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await kopf_credentials()

    @kopf.on.cleanup(registry=registry)
    async def stopping(**_: Any) -> None:
        # kopf waits 5 s for tasks that it did not start before it cancels them.
        running.cancel()
        await asyncio.wait({running})

    return registry


async def kopf_credentials() -> kopf.ConnectionInfo:
    """Return the client's credentials, for the list of APIs that kopf reads at its start."""
    configuration = await load_configuration()
    scheme, _, token = configuration.api_key.get("BearerToken", "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


async def ended(task: "asyncio.Task[None]") -> None:
    """Cancel the task and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


class Backoffs:
    """Pauses between attempts, in seconds: ever longer ones, and no last one."""

    def __iter__(self) -> Iterator[float]:
        return chain((1.0, 2.0, 4.0, 8.0), repeat(LONGEST_BACKOFF_SECONDS))


def frame_settings() -> kopf.OperatorSettings:
    """Return settings under which kopf writes nothing and watches nothing."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    # For ever: an API server that is away at the start ends kopf, and with it the operator, after some minutes.
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.process.ultimate_exiting_timeout = 30
    return settings


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
    """Options of `rewardpool operator run`."""

    namespaces: Sequence[str] = ()
    """Namespaces to serve; none of them means all."""
    ports: Ports = field(default_factory=Ports)
    front_socket: Path | None = None
    """Unix socket for the front; None makes none."""
    front_page: bool = False
    probe_socket: Path | None = None
    """Unix socket for the kubelet's probe; None makes none."""
    lease: tuple[str, str] | None = None
    """Namespace and name of the Lease that operators agree by; None for the only operator there is."""
    concurrent_upgrades: int = 1
    log_format: LogFormat = "text"
    verbose: bool = False


async def serve(settings: OperatorOptions) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises:
        SystemExit: the cluster does not know RewardPools.
        ExceptionGroup: what ended the operator; of an `EtcdRestoredError` where etcd was restored from a backup.
    """
    # Direct connections only: pods are never behind the proxy that the environment may name.
    configuration = await load_configuration()
    async with (
        Kube(configuration, on_request=METRICS.kube_request) as kube,
        aiohttp.ClientSession(connector=_connector()) as session,
        AsyncExitStack() as stack,
    ):
        if not await kube.serves(POOLS):
            raise SystemExit(NO_CRD)
        leadership = None
        if settings.lease is not None:
            namespace, name = settings.lease
            leadership = Leadership(kube, namespace=namespace, name=name, operator=socket.gethostname())
        acting = leadership.acting if leadership is not None else lambda: Acting.FULL
        METRICS.read_leading(lambda: acting() is Acting.FULL)
        namespaces = settings.namespaces
        budgets = _of_environment(NamespaceBudgets.from_environment)
        if budgets and namespaces:
            raise SystemExit(f"{names.ENV_BUDGETS} needs an operator of all namespaces: leave --namespace out")
        operator = Manager(
            kube,
            session,
            image=own_image(),
            identity=_of_environment(OperatorIdentity.from_environment),
            defaults=_of_environment(PoolDefaults.from_environment),
            budgets=budgets,
            namespaces=namespaces,
            acting=acting,
            concurrent_upgrades=settings.concurrent_upgrades,
            agent_sandbox=os.environ.get(names.ENV_AGENT_SANDBOX) == "true",
        )
        if leadership is not None:
            stack.push_async_callback(leadership.release)
        running = asyncio.create_task(_run(operator, leadership), name="operator")
        has_ended = asyncio.Event()
        running.add_done_callback(lambda _: has_ended.set())
        stack.push_async_callback(ended, running)
        log.info("%s: %s", RUNNING, ", ".join(namespaces) or "all namespaces")
        answers = answers_of(operator)
        _serve_sockets(answers, settings, stack)
        address = partial(Address.from_configuration, configuration)
        await front.serve(lambda path: answers[path](), settings.ports, stack, address=address, namespaces=namespaces)
        await kopf.operator(
            registry=wiring(running),
            settings=frame_settings(),
            standalone=True,
            # kopf would ask for the name of the user, and the bare user id of a container has none.
            identity=cast(Any, names.FIELD_MANAGER),
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=has_ended,
        )


def _connector() -> aiohttp.TCPConnector:
    # For a thousand pools, some of whose addresses are silent. A connection is kept from look to look of a busy pool;
    # those to quiet pools would only hold open files.
    return aiohttp.TCPConnector(limit=500, limit_per_host=8, keepalive_timeout=3.0)


async def _run(operator: Manager, leadership: Leadership | None) -> None:
    """Run the operator and the election, until cancelled; the end of either ends the other."""
    async with asyncio.TaskGroup() as group:
        if leadership is not None:
            group.create_task(leadership.run(), name="leadership")
        group.create_task(operator.run(), name="manager")


def answers_of(operator: Manager) -> Answers:
    """Return what is known of an operator without its rights, by the paths of its socket."""

    async def health() -> bytes:
        return json.dumps(operator.health()).encode()

    offer = Offer(operator.store, is_being_listed=operator.is_being_listed)
    metrics = {path: partial(METRICS.exposition, accept) for path, accept in front.FORMATS.items()}
    return {HEALTH_PATH: health, POOLS_PATH: offer.pools, **metrics}


def _serve_sockets(answers: Answers, settings: OperatorOptions, stack: AsyncExitStack) -> None:
    """Answer at the sockets until the stack ends.

    Raises:
        SystemExit: One cannot be made.
    """
    to_front = {path: answer for path, answer in answers.items() if path != POOLS_PATH or settings.front_page}
    # The probe has its own: whoever holds up the front's must not have the operator started again.
    for path, allowed in (
        (settings.front_socket, to_front),
        (settings.probe_socket, {HEALTH_PATH: answers[HEALTH_PATH]}),
    ):
        if path is not None:
            try:
                listener = stack.enter_context(operator_socket.listen(path))
            except OSError as error:
                raise SystemExit(f"the socket {path} cannot be made: {error.strerror or error}") from None
            stack.push_async_callback(ended, asyncio.create_task(operator_socket.serve(listener, allowed)))


def _of_environment(read: Callable[[Mapping[str, str]], T]) -> T:
    try:
        return read(os.environ)
    except ValueError as error:
        raise SystemExit(f"the operator's environment is wrong: {error}") from None


def run(settings: OperatorOptions) -> None:
    """`rewardpool operator run`, in a pod or outside the cluster; see `serve`."""
    logs.set_up(settings.log_format, verbose=settings.verbose)
    gc.set_threshold(*GC_THRESHOLDS)
    # Half of what it would look through is modules, which are for good.
    gc.freeze()
    # Until kopf takes the signals over: the API server may be away at the start, and the first process of a container
    # ignores a signal without a handler.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit)
    try:
        asyncio.run(serve(settings))
    except (CredentialsError, KubeError, KubeUnreachableError) as error:
        raise SystemExit(f"no cluster to work on: {error}") from None
    except ExceptionGroup as group:
        restored, others = group.split(EtcdRestoredError)
        if restored is None or others is not None:
            raise
        words = "etcd was restored from a backup, so everything is to be listed anew: start the operator again"
        raise SystemExit(f"{words} ({_first_of(restored)})") from None


def _exit(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first

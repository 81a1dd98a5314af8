"""The replicas of a pool, each asked by itself, past the routers."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from rewardpool import RewardConfig
from rewardpool._discovery.endpoint import Endpoint
from rewardpool._discovery.find import find_pool
from rewardpool._discovery.pool_sources import KubernetesSource
from rewardpool_api import RewardPool, names
from rewardpool_api.contract import CallerError, InvalidResponseError
from rewardpool_api.engines import FOR_MODELS
from rewardpool_api.teacher_wire import question
from rewardpool_cli.errors import CommandError
from rewardpool_cli.verification import OnProgress, Tolerance
from rewardpool_cli.verification.determinism import (
    Answer,
    Certificate,
    Measured,
    Samples,
    SendStep,
    certify,
    own_samples,
    plan,
    samples_of,
)
from rewardpool_kube.resources import PODS, Object
from rewardpool_operator.kubernetes.workload.pods import is_ready, worker_of
from rewardpool_operator.probe import NoScoreError, logprobs_of, scores_of
from rewardpool_runtime.listeners import check_listener
from rewardpool_runtime.untrusted import printable, without_secrets

REQUEST_SECONDS: Final = 120.0
REPLICA_SECONDS: Final = 1800.0
CONNECT_SECONDS: Final = 5.0
MOST_REPLICAS: Final = 64
MOST_WORDS: Final = 500  # characters
TOP_K: Final = 8

Progress = Callable[[str, int], AbstractContextManager[OnProgress]]


@dataclass(frozen=True, kw_only=True)
class CheckedReplica:
    """One worker."""

    name: str
    url: str


@dataclass(frozen=True, kw_only=True)
class QuestionSettings:
    """Questions to a pool's workers."""

    fields: Mapping[str, str]
    key: str | None
    top_k: int | None
    """Vocabulary of a teacher; None for a model that scores."""
    request_seconds: float = REQUEST_SECONDS
    replica_seconds: float = REPLICA_SECONDS


async def certified(
    name: str, adapter: str | None, texts: Sequence[str] | None, tolerance: Tolerance, *, progress: Progress
) -> Certificate:
    """Measure whether a live pool's numbers depend on how they are requested.

    Args:
        name: `namespace/name` of a pool of a reward model or teacher.
        adapter: What scores; None for the model itself.
        texts: What is sent; by default token ids.
        progress: Shows how many requests are over.

    Raises:
        RewardPoolError: Pool not found, or it cannot be used.
        CommandError: Its replicas are not to be found.
    """
    endpoint = await find_pool(RewardConfig(pool=name, adapter=adapter))
    if endpoint.source is None:
        raise CommandError(f"{endpoint.origin} names a router, and replicas are found by the pool's object: unset it")
    pool = await endpoint.source.read_pool(*name.split("/"))
    replicas = await replicas_of(endpoint, pool)
    spec, seed = pool.spec, secrets.randbits(32)
    is_teacher = spec.model.type == "Teacher"
    if texts is None:
        chunks = bool(FOR_MODELS[spec.engine.name].no_chunks.args)
        samples = own_samples(seed, most_tokens=endpoint.max_model_len, chunks=chunks)
    else:
        samples = samples_of(texts)
    steps = plan(samples, together=not is_teacher, seed=seed)
    top_k = min(TOP_K, spec.model.most_top_k) if is_teacher else None
    asked = QuestionSettings(fields=endpoint.model_fields, key=endpoint.key, top_k=top_k)
    with progress(name, len(replicas) * sum(len(step.requests) for step in steps)) as on_progress:
        measured = await measure(replicas, samples, steps, asked, on_progress=on_progress)
    return certify(samples, steps, measured, tolerance, spec)


async def replicas_of(endpoint: Endpoint, pool: RewardPool) -> list[CheckedReplica]:
    """Return the replicas of the pool's present revision that answer, the first MOST_REPLICAS by name.

    Raises:
        CommandError: There is none.
        ForeignListenerError: Another user listens at a replica's address on this machine.
        PoolAccessError: Its pods may not be listed.
    """
    revision = pool.status.current_revision
    if isinstance(endpoint.source, KubernetesSource):
        found = await _pods(endpoint.source, pool)
    else:
        found = [
            (worker.revision, CheckedReplica(name=worker.name, url=worker.url))
            for worker in pool.status.workers
            if worker.phase == "Ready"
        ]
        for _, replica in found:
            address = urlsplit(replica.url)
            check_listener(address.hostname or "", address.port or 0)
    present = sorted((one for of, one in found if of == revision), key=lambda one: one.name)
    if not present:
        raise CommandError(f"no replica of {pool.key}'s revision {revision} is ready: `rewardpool explain {pool.key}`")
    return present[:MOST_REPLICAS]


async def _pods(source: KubernetesSource, pool: RewardPool) -> list[tuple[str, CheckedReplica]]:
    namespace = pool.metadata.namespace
    selector = f"{names.LABEL_POOL}={pool.metadata.name},{names.LABEL_COMPONENT}={names.COMPONENT_WORKER}"
    pods: list[Object] | None = await source.request(
        lambda kube: kube.list(PODS, namespace, selector=selector), f"pods in namespace {namespace}", verb="list"
    )
    workers = [worker_of(pod) for pod in pods or () if is_ready(pod)]
    return [(one.revision, CheckedReplica(name=one.name, url=one.url)) for one in workers if one.url and one.active]


async def measure(
    replicas: Sequence[CheckedReplica],
    samples: Samples,
    steps: Sequence[SendStep],
    asked: QuestionSettings,
    *,
    on_progress: OnProgress,
) -> list[Measured]:
    """Ask all replicas side by side; one that does not answer is an outcome, no error.

    Args:
        on_progress: Receives the number of requests that are over.
    """
    over = 0

    def count() -> None:
        nonlocal over
        over += 1
        on_progress(over)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return await asyncio.gather(
            *(_Asker(session, replica, samples, asked, count).carry_out(steps) for replica in replicas)
        )


class _Asker:
    """Asks one replica, until it does not answer or its time is over."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        replica: CheckedReplica,
        samples: Samples,
        asked: QuestionSettings,
        count: Callable[[], None],
    ) -> None:
        self._session = session
        self._replica = replica
        self._samples = samples
        self._asked = asked
        self._count = count
        self._until = monotonic() + asked.replica_seconds
        self._silent: str | None = None
        """Reason why it is asked nothing more."""

    async def carry_out(self, steps: Sequence[SendStep]) -> Measured:
        answers = []
        for step in steps:
            if step.at_once:
                found = await asyncio.gather(*map(self._answers, step.requests))
            else:
                found = [await self._answers(request) for request in step.requests]
            answers.append({at: answer for some in found for at, answer in some.items()})
        return Measured(replica=self._replica.name, answers=tuple(answers))

    async def _answers(self, positions: tuple[int, ...]) -> dict[int, Answer]:
        left = self._until - monotonic()
        if left <= 0:
            self._silent = self._silent or f"not done within {self._asked.replica_seconds:g} s"
        try:
            if self._silent is not None:
                return dict.fromkeys(positions, self._silent)
            seconds = min(left, self._asked.request_seconds)
            timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
            return await self._answers_within(timeout, positions)
        except (NoScoreError, InvalidResponseError) as error:
            self._silent = self._said(str(error))
            return dict.fromkeys(positions, self._silent)
        finally:
            self._count()

    async def _answers_within(self, timeout: aiohttp.ClientTimeout, positions: tuple[int, ...]) -> dict[int, Answer]:
        items = [self._samples.items[at] for at in positions]
        found: list[Answer] | CallerError
        if self._asked.top_k is None:
            request = {**self._asked.fields, "input": items}
            scores = await scores_of(
                self._session, self._replica.url, self._asked.key, request, count=len(items), timeout=timeout
            )
            found = scores if isinstance(scores, CallerError) else [(float(score),) for score in scores]
        else:
            found = []
            for item in items:
                wanted = question([*item], top_k=self._asked.top_k, model=self._asked.fields["model"])
                values = await logprobs_of(self._session, self._replica.url, self._asked.key, wanted, timeout=timeout)
                if isinstance(values, CallerError):
                    found = values
                    break
                found.append((*values.logprobs, *values.top_logprobs))
        if isinstance(found, CallerError):
            return dict.fromkeys(positions, self._said(f"{found.code}: {found.message}"))
        return dict(zip(positions, found, strict=True))

    def _said(self, words: str) -> str:
        """Return what a replica said, fit for a terminal: code of a model may run there, and can read the key."""
        return without_secrets(printable(words, most=MOST_WORDS), [self._asked.key])

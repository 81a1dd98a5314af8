"""The way from the config's one key to a router's address.

The order: an explicit URL, the environment, the RewardPool object's status in the cluster, the state file of a pool on
this machine. The last two hold the same object, so one rule, `why_not_ready`, says of both whether they can score.

    config -> URL given? -> yes: that, with the key of the key file
                         -> no:  each source in order -> object -> ready, or will be, and has an address -> Endpoint
                                                               -> will be, and has no address yet -> wait
                                                               -> will not be -> an error that says why

A pool whose workers are on their way is found like one that serves: its samples wait for it within their deadlines, as
those of a client do that has started already. Only an address that is not known yet is waited for here, for no longer.

A source that cannot be read (an expired kubeconfig on a laptop, say) does not hide a pool in the next one; when no
source has the pool, its error is the one that is raised, because it is the likelier cause.
"""

import asyncio
import base64
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rewardpool._config import RewardConfig, check_pool, check_url
from rewardpool._deadline import already_waited
from rewardpool._discovery.endpoint import Endpoint, ServedModel
from rewardpool._discovery.pool_sources import (
    KubernetesSource,
    LocalSource,
    PoolNotHere,
    PoolSource,
    SourceUnavailableError,
    read_ca_file,
    read_key_files,
)
from rewardpool._mistakes import did_you_mean
from rewardpool.errors import (
    ConfigError,
    PoolAccessError,
    PoolNotFoundError,
    PoolNotReadyError,
    PoolNotYetReadyError,
)
from rewardpool_api import names
from rewardpool_api.reasons import ConditionReason
from rewardpool_runtime.trust import verifying_context

if TYPE_CHECKING:
    from rewardpool_api import RewardPool

log = logging.getLogger(__name__)

# Between two look-ups of a pool that is waited for.
POLL_SECONDS = 1.0
# How long an API server that does not answer is waited for. One that restarts is back in seconds.
AWAY_SECONDS = 30.0
# Reasons of Serving=False that do not pass by themselves.
LASTING = frozenset(
    {
        ConditionReason.SUSPENDED,
        ConditionReason.STOPPED,
        ConditionReason.GAVE_UP,
        ConditionReason.SUPERVISOR_FAILED,
        ConditionReason.MODEL_NOT_FOUND,
        ConditionReason.FUNCTION_NOT_FOUND,
        ConditionReason.FUNCTION_NOT_LOADABLE,
        ConditionReason.SANDBOX_UNAVAILABLE,
        ConditionReason.MODEL_UNAUTHORIZED,
        ConditionReason.MODEL_REFUSED,
        ConditionReason.BAD_ARGUMENTS,
        ConditionReason.DOWNLOADER_MISSING,
    }
)
# Pools that a message names, where the one that is looked for is not there.
MOST_LISTED = 20
# The contract wants the `model` of requests to a bare URL; sglang-router ignores it, smg takes this for any.
UNNAMED_MODEL = "unknown"


async def discover(pool: str | Mapping[str, Any] | RewardConfig) -> Endpoint:
    """Find a pool, by `namespace/name`, a router's URL, or the config that names it; raises what `find_pool` does."""
    return await find_pool(RewardConfig.of(pool))


async def find_pool(
    config: RewardConfig,
    *,
    environ: Mapping[str, str] | None = None,
    sources: Sequence[PoolSource] | None = None,
    require_ready: bool = True,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Endpoint:
    """Find the pool that the config names.

    Args:
        config: Which pool, and how long to wait for it.
        environ: Environment variables; by default those of this process.
        sources: Where to look for the object, in order; by default the cluster and then this machine.
        require_ready: False takes a pool's address whatever its health, as a client that has started already does.

    Raises:
        ConfigError: No pool is named, or an environment variable is wrong.
        PoolNotFoundError: No source has it.
        PoolAccessError: It, or its key, may not be read.
        PoolNotReadyError: It cannot score, also not after `config.wait_seconds`; or, without these, for a cause that
            lasts; or it has no address within `config.timeout`.
    """
    environ = os.environ if environ is None else environ
    explicit = _explicit_endpoint(config, environ)
    if explicit is not None:
        return explicit
    pool = _pool_name(config, environ)
    if pool is None:
        raise ConfigError(
            "pool",
            f"set it to namespace/name of a RewardPool, or set url, ${names.ENV_POOL} or ${names.ENV_URL}",
        )
    if sources is None:
        sources = (KubernetesSource(environ), LocalSource(environ))
    key_file = _file(config.key_file, environ, names.ENV_KEY_FILE)
    wait_until_ready = require_ready and config.wait_seconds > 0
    began = clock()
    said = ""
    while True:
        try:
            found = await _find(pool, sources, key_file=key_file, require_ready=require_ready, adapter=config.adapter)
            if not (wait_until_ready and found.not_ready):
                return found
            raise PoolNotYetReadyError(f"RewardPool {found.pool} ({found.origin}) is not ready: {found.not_ready}")
        except (PoolNotReadyError, SourceUnavailableError) as error:
            left = began + _patience(error, config) - clock() if require_ready else 0.0
            if left <= 0:
                raise
            if str(error) != said:
                said = str(error)
                log.info("waiting up to %.0f s more: %s", left, said)
        await sleep(min(POLL_SECONDS, left))


def _patience(error: PoolNotReadyError | SourceUnavailableError, config: RewardConfig) -> float:
    """Seconds in which that may pass, from the first look on."""
    left = config.timeout - already_waited()
    if isinstance(error, SourceUnavailableError):
        return min(AWAY_SECONDS, left)
    if config.wait_seconds > 0:
        return config.wait_seconds
    return left if isinstance(error, PoolNotYetReadyError) else 0.0


def lasts(pool: "RewardPool") -> bool:
    """Return whether the obstacle to scoring, if there is one, does not pass by itself."""
    status = pool.status
    serving = status.condition("Serving")
    at_zero = status.replicas == 0 and pool.spec.replicas == 0 and pool.spec.autoscaling is None
    return (
        pool.metadata.deletion_timestamp is not None
        or pool.spec.suspend
        or (serving is not None and serving.status == "False" and (at_zero or serving.reason in LASTING))
    )


def why_not_ready(pool: "RewardPool") -> str | None:
    """Return why samples cannot be scored by the pool now; None when they can."""
    status = pool.status
    serving = status.condition("Serving")
    said = f"Serving is {serving.status}, {serving.reason}: {serving.message}" if serving else "it has no status yet"
    if pool.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if pool.spec.suspend:
        return "it is suspended; set spec.suspend to false"
    if status.url is None or status.model is None:
        return f"it has no URL yet ({said}); is the operator running?"
    if serving is not None and serving.status in ("True", "Unknown"):
        # Serving needs no operator: where that does not know, the samples tell.
        return None
    if status.sleep is not None and (status.sleep.holders or status.sleep.state == "Asleep"):
        # It is asleep, which is healthy; `Pool.awake` wakes it.
        return None
    if status.replicas == 0 and pool.spec.autoscaling is not None:
        # The first samples start it, and wait for it within their deadline.
        return None
    if status.replicas == 0 and pool.spec.replicas == 0:
        return "it is at zero replicas, and without spec.autoscaling nothing starts one; set spec.replicas"
    return said


async def _find(
    pool: str, sources: Sequence[PoolSource], *, key_file: Path | None, require_ready: bool, adapter: str | None
) -> Endpoint:
    namespace, _, name = pool.partition("/")
    looked: list[str] = []
    refused: PoolAccessError | None = None
    for source in sources:
        try:
            found = await source.read_pool(namespace, name)
        except PoolNotHere as absence:
            looked.append(str(absence))
            continue
        except PoolAccessError as error:
            refused = refused or error
            continue
        if refused is not None:
            log.warning(
                "using RewardPool %s of %s, although another source could not be read: %s", pool, source, refused
            )
        keys = read_key_files(key_file) if key_file else ()
        _check_adapter(found, adapter)
        endpoint = await _endpoint(found, source, keys=keys, require_ready=require_ready)
        return replace(endpoint, adapter=adapter)
    if refused is not None:
        raise refused
    there = [await _pools_of(source, namespace) for source in sources]
    near = did_you_mean(pool, [name for pools, _ in there for name in pools])
    raise PoolNotFoundError(
        f"no RewardPool {pool}{near or '.'}"
        f" Looked at: {'; '.join(looked)}. {' '.join(said for _, said in there)} Start one on this machine with"
        " `rewardpool up -f POOL.yaml`, or in a cluster with `kubectl apply -f POOL.yaml`"
    )


async def _pools_of(source: PoolSource, namespace: str) -> tuple[list[str], str]:
    try:
        found = await source.pool_names(namespace)
    except PoolAccessError as error:
        return [], f"Pools of {source} cannot be listed ({error}); try `kubectl get rewardpools -n {namespace}`."
    more = f" and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return found, f"Pools of {source}: {', '.join(found[:MOST_LISTED]) or 'none'}{more}."


def _check_adapter(pool: "RewardPool", adapter: str | None) -> None:
    """Raise ConfigError where the pool has no such adapter, PoolNotYetReadyError while a worker lacks it."""
    there = pool.adapter_names
    if adapter is None or (
        adapter in there and pool.status.model is not None and adapter in (pool.status.model.adapters or ())
    ):
        return
    if adapter in there:
        raise PoolNotYetReadyError(f"RewardPool {pool.key}: not every worker has the adapter {adapter} yet")
    has = f"has {', '.join(there)}" if there else "has no spec.model.adapters"
    raise ConfigError(
        "adapter", f"{adapter} is not an adapter of RewardPool {pool.key}, which {has}{did_you_mean(adapter, there)}"
    )


async def _endpoint(pool: "RewardPool", source: PoolSource, *, keys: tuple[str, ...], require_ready: bool) -> Endpoint:
    problem = why_not_ready(pool)
    status = pool.status
    has_address = status.url is not None and status.model is not None
    if problem is not None and (not has_address or (require_ready and lasts(pool))):
        kind = PoolNotReadyError if lasts(pool) else PoolNotYetReadyError
        raise kind(f"RewardPool {pool.key} ({source}) is not ready: {problem}")
    if status.url is None or status.model is None:  # then there is a problem
        raise RuntimeError("a pool without an address is not ready")
    key, *others = keys or await source.read_keys(pool) or (None,)
    return Endpoint(
        url=status.url.rstrip("/"),
        key=key,
        other_keys=tuple(filter(None, others)),
        ca=_certificates(pool),
        pool=pool.key,
        served_name=status.model.served_name,
        model_type=status.model.type,
        max_model_len=status.model.max_model_len,
        step_token=None if pool.spec.model.head is None else pool.spec.model.head.step_token,
        revisions=_revisions(pool),
        dtype=pool.spec.engine.dtype,
        is_fixed_size=pool.spec.autoscaling is None,
        limits=pool.request_limits,
        origin=str(source),
        pool_object_version=pool.metadata.resource_version,
        pool_uid=pool.metadata.uid,
        source=source,
        is_own=isinstance(source, LocalSource),
        not_ready=problem or "",
    )


def _revisions(pool: "RewardPool") -> tuple[ServedModel, ...]:
    """Return the models of the revisions, the one that gets replicas first; the spec's model before any is known."""
    spec, status = pool.spec, pool.status
    known = [
        ServedModel(
            revision=one.revision,
            source=one.source,
            commit=one.commit or (spec.model.revision if one.source == spec.model.source else None),
            served_name=one.served_name,
            tokenizer=one.tokenizer,
            max_model_len=one.max_model_len,
            head=one.head,
            step_token=one.step_token,
            dtype=one.dtype,
        )
        for one in (status.model.revisions if status.model else ())
    ]
    target = status.rollout.target_revision if status.rollout else status.current_revision
    if known:
        return tuple(sorted(known, key=lambda one: one.revision != target))
    head = spec.model.head
    model = ServedModel(
        revision=status.current_revision,
        source=spec.model.source,
        commit=(status.model.commit if status.model else None) or spec.model.revision,
        served_name=pool.served_name,
        head=head.type if head else None,
        step_token=head.step_token if head else None,
        dtype=spec.engine.dtype,
    )
    return (model,)


def _certificates(pool: "RewardPool") -> str | None:
    bundle = pool.status.auth.ca_bundle
    if bundle is None:
        return None
    try:
        pem = base64.b64decode(bundle, validate=True).decode()
        verifying_context(pem)
    except ValueError as error:  # what base64, unicode and PEM raise
        raise PoolNotReadyError(f"RewardPool {pool.key}: status.auth.caBundle is not PEM in base64: {error}") from error
    return pem


def _explicit_endpoint(config: RewardConfig, environ: Mapping[str, str]) -> Endpoint | None:
    url, origin = config.url, "the config's url"
    if url is None and names.ENV_URL in environ:
        origin = f"${names.ENV_URL}"
        url = _checked(environ[names.ENV_URL], check_url, origin)
    if url is None:
        return None
    pool = _pool_name(config, environ)
    key_file = _file(config.key_file, environ, names.ENV_KEY_FILE)
    ca_file = _file(config.ca_file, environ, names.ENV_CA_FILE)
    key, *others = read_key_files(key_file) if key_file else (None,)
    return Endpoint(
        url=url,
        key=key,
        other_keys=tuple(filter(None, others)),
        ca=read_ca_file(ca_file) if ca_file else None,
        pool=pool or url,
        adapter=config.adapter,
        served_name=config.served_name or (pool.partition("/")[2] if pool else UNNAMED_MODEL),
        origin=origin,
    )


def _pool_name(config: RewardConfig, environ: Mapping[str, str]) -> str | None:
    if config.pool is not None or names.ENV_POOL not in environ:
        return config.pool
    return _checked(environ[names.ENV_POOL], check_pool, f"${names.ENV_POOL}")


def _file(of_config: Path | None, environ: Mapping[str, str], name: str) -> Path | None:
    given = environ.get(name)
    return of_config or (Path(given) if given else None)


def _checked(value: str, check: Callable[[str], str], name: str) -> str:
    try:
        return check(value)
    except ValueError as error:
        raise ConfigError(name, f"{error}, not {value!r}") from error


async def check_address(endpoint: Endpoint) -> None:
    """Raise PoolAccessError where a kubeconfig led to a pool whose address is known in its cluster alone."""
    # A pod's name server may be away for a moment; there the samples wait for it, within their deadlines.
    if not isinstance(endpoint.source, KubernetesSource) or endpoint.source.is_in_pod:
        return
    address = urlsplit(endpoint.url)
    try:
        await asyncio.get_running_loop().getaddrinfo(address.hostname, address.port)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            return
        service, namespace = (address.hostname or "").partition(".")[0], endpoint.pool.partition("/")[0]
        secure = f", ${names.ENV_CA_FILE} and that name in /etc/hosts" if address.scheme == "https" else ""
        raise PoolAccessError(
            f"RewardPool {endpoint.pool} ({endpoint.origin}) is at {endpoint.url}, a name that only the cluster's pods"
            f" know ({error.strerror}). Run this in a pod, or forward the port, `kubectl --namespace {namespace}"
            f" port-forward service/{service} {address.port}`, and set ${names.ENV_URL} and"
            f" ${names.ENV_KEY_FILE}{secure}"
            " (docs/production.md, From outside the cluster)"
        ) from error

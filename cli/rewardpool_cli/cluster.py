"""The cluster as a person uses it: with the kubeconfig's credentials, and with refusals in words.

Slow to import (the client brings a model of every kind), so commands import it once they know that they need it.
"""

import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml
from kubernetes_asyncio import client as kubernetes_client
from kubernetes_asyncio import config as kubernetes_config
from pydantic import ValidationError

from rewardpool_api import RewardPool, names
from rewardpool_cli.errors import CommandError, RefusedError
from rewardpool_cli.explain.evidence import Evidence, newest_warnings
from rewardpool_cli.program import program
from rewardpool_cli.targets import Target, has_cluster
from rewardpool_kube.client import Kube
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.kubeconfig import load_kubeconfig
from rewardpool_kube.resources import DEPLOYMENTS, EVENTS, PODS, POOLS, Object, Resource
from rewardpool_operator.kubernetes.stored_pool import StoredPool
from rewardpool_runtime.bounded import read_text

FIELD_MANAGER: Final = "rewardpool-cli"
"""Who changed a pool's spec by a command, in its managedFields."""
MAX_EVENTS: Final = 500
"""Warnings read of a namespace; those about pods that are gone are among them."""
MAX_LINE_BYTES: Final = 1 << 18
"""Of a log; a longer one is shown in parts."""
MAX_TEXT_BYTES: Final = 16 << 20
"""Of a router's metrics; those of a router that saw many workers are some."""

_FORBIDDEN: Final = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"(?: in API group "[^"]*")?'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class UserKube(Kube):
    """The API server, with the calls that only people make."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._client.user_agent = FIELD_MANAGER
        return self

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._configuration.host)

    async def warnings(self, namespace: str) -> list[Object]:
        """Warning events about pods."""
        query = {"fieldSelector": "type=Warning,regarding.kind=Pod", "limit": str(MAX_EVENTS)}
        return (await self._list(EVENTS.path(namespace), query)).items

    async def patch(
        self, resource: Resource, namespace: str, name: str, patch: Object | list[Object], *, subresource: str = ""
    ) -> Object:
        """A JSON merge patch (an object) or a JSON patch (a list of operations)."""
        kind = "merge-patch" if isinstance(patch, dict) else "json-patch"
        return await self._object(
            "patch",
            resource.path(namespace, name, subresource),
            body=patch,  # type: ignore[arg-type]
            content_type=f"application/{kind}+json",
            query={"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"},
        )

    async def log_lines(
        self, namespace: str, pod: str, *, query: Mapping[str, str], follows: bool
    ) -> AsyncIterator[str]:
        """Lines of a container's log; `query` as in the API of pods/log.

        Raises:
            KubeError: there is no such log.
            KubeUnreachableError: it broke off.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3, sock_read=None if follows else 30)
        path = PODS.path(namespace, pod, "log")
        async with self._request("get", path, query=query, timeout=timeout) as response:
            if response.status != 200:
                raise _refusal(f"get {path}", response.status, await response.text())
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")

    async def text(self, path: str) -> str:
        """What a GET answers, as text of at most `MAX_TEXT_BYTES`."""
        async with self._request("get", path) as response:
            answer = await read_text(response, limit_bytes=MAX_TEXT_BYTES)
            if response.status != 200:
                raise _refusal(f"get {path}", response.status, answer)
            return answer


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """An API server, and where in it the user is."""

    kube: UserKube
    namespace: str
    context: str | None = None
    """Of the kubeconfig; None in a pod."""

    async def pool(self, name: str) -> RewardPool:
        """The pool of that name.

        Raises:
            CommandError: there is none.
        """
        return parsed(await self._stored(name))

    async def _stored(self, name: str) -> Object:
        found = await self.kube.get(POOLS, self.namespace, name)
        if found is None:
            known = [item["metadata"]["name"] for item in await self.kube.list(POOLS, self.namespace, selector="")]
            raise CommandError(
                f"there is no RewardPool {name} in namespace {self.namespace}; there are: {', '.join(known) or 'none'}"
            )
        return found

    async def pools(self, *, everywhere: bool) -> list[RewardPool]:
        """All pools of the namespace, or of the cluster."""
        found = await self.kube.list(POOLS, "" if everywhere else self.namespace, selector="")
        return [parsed(item) for item in found]

    async def evidence(self, name: str) -> Evidence:
        """Everything about one pool that the user may read; what may not be read is named, with the reason."""
        # Also one that is not valid: its conditions say why.
        pool = StoredPool.parse(await self._stored(name)).pool
        selector = f"{names.LABEL_POOL}={name}"
        unreadable: dict[str, str] = {}

        async def guarded(what: str, items: Any) -> list[Object]:
            try:
                found: list[Object] = await items
            except KubeError as error:
                if error.status != 403:
                    raise
                unreadable[what] = in_words(error)
                return []
            return found

        pods = await guarded("pods", self.kube.list(PODS, self.namespace, selector=selector))
        deployments = await guarded("deployments", self.kube.list(DEPLOYMENTS, self.namespace, selector=selector))
        events = await guarded("events", self.kube.warnings(self.namespace))
        return Evidence(
            now=datetime.now(UTC),
            pool=pool,
            pods=tuple(pods),
            deployments=tuple(deployments),
            warnings=newest_warnings(events),
            unreadable=unreadable,
            program=program(),
        )


@asynccontextmanager
async def connect(target: Target, *, environ: Mapping[str, str] = os.environ) -> AsyncIterator[Cluster]:
    """The cluster of a target; what goes wrong inside is raised in words.

    Raises:
        CommandError: no credentials, no answer, or a refusal.
    """
    configuration, namespace, context = await _configured(target.context, environ)
    try:
        async with UserKube(configuration) as kube:
            yield Cluster(kube=kube, namespace=target.namespace or namespace, context=context)
    except KubeUnreachableError as error:
        raise CommandError(
            f"the API server {configuration.host} does not answer ({error}): see that the cluster runs and that"
            " --context is the right one, or say --local for pools of this machine"
        ) from None
    except KubeError as error:
        kind = RefusedError if error.status in (400, 409, 422) else CommandError
        raise kind(in_words(error)) from None


async def default_namespace(context: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The namespace that the user is in, by the kubeconfig or the pod.

    Raises:
        RefusedError: no cluster is configured, or not rightly.
    """
    _, namespace, _ = await _configured(context, environ)
    return namespace


def _kubeconfig_fault(error: Exception, environ: Mapping[str, str]) -> str:
    match error:
        case kubernetes_config.ConfigException():
            return str(error)
        case OSError():
            return f"{error.filename}: {error.strerror}"
        case _:
            # An empty file, a list or a text end in a TypeError of the library's.
            return f"{environ.get('KUBECONFIG', '~/.kube/config')} is not a kubeconfig: not YAML, or not an object"


async def _configured(
    context: str | None, environ: Mapping[str, str]
) -> tuple[kubernetes_client.Configuration, str, str | None]:
    if not has_cluster(environ):
        raise RefusedError("no cluster is configured: set $KUBECONFIG, or say --local for pools of this machine")
    try:
        return await _credentials(context, environ)
    except (
        kubernetes_config.ConfigException,
        OSError,
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
        yaml.YAMLError,
    ) as error:
        why = _kubeconfig_fault(error, environ)
        raise RefusedError(
            f"no cluster can be asked: {why}; set $KUBECONFIG or --context, or say --local for pools of this machine"
        ) from None


async def _credentials(
    context: str | None, environ: Mapping[str, str]
) -> tuple[kubernetes_client.Configuration, str, str | None]:
    """The configuration, the namespace that the user is in, and the context, which a pod has none of."""
    configuration = kubernetes_client.Configuration()
    if context is None and "KUBECONFIG" not in environ and "KUBERNETES_SERVICE_HOST" in environ:
        kubernetes_config.load_incluster_config(client_configuration=configuration)
        return configuration, _ACCOUNT_NAMESPACE.read_text().strip(), None
    file = environ.get("KUBECONFIG")
    await load_kubeconfig(configuration, files=file, context=context)
    contexts, active = kubernetes_config.list_kube_config_contexts(config_file=file)
    chosen = next((each for each in contexts if each["name"] == context), active)
    return configuration, chosen["context"].get("namespace") or "default", chosen["name"]


def parsed(raw: Object) -> RewardPool:
    """The object as its model; fields of a newer operator are left aside.

    Raises:
        CommandError: it is not understood.
    """
    try:
        return RewardPool.model_validate(raw, extra="ignore")
    except ValidationError as error:
        name = raw["metadata"]["name"]
        raise CommandError(
            f"RewardPool {name} is of a version that this program does not understand: {error}"
        ) from None


def in_words(error: KubeError) -> str:
    """What a refusal means, and who can help."""
    if error.status == 401:
        return "the API server does not accept the credentials (401): renew them"
    if (
        error.status == 404
        and error.reason in ("", "NotFound")
        and "could not find the requested resource" in str(error)
    ):
        return f"the cluster has no RewardPools: install the chart, or apply what `rewardpool crd` prints ({error})"
    forbidden = _FORBIDDEN.search(str(error)) if error.status == 403 else None
    if forbidden is None:
        return str(error)
    place = f"in namespace {forbidden['namespace']}" if forbidden["namespace"] else "in the whole cluster"
    role = "view" if forbidden["verb"] in ("get", "list", "watch") else "edit"
    return (
        f"{forbidden['user']} may not {forbidden['verb']} {forbidden['resource']} {place} (403)."
        f" Kubernetes' role `{role}` allows it: ask an administrator to bind it there"
    )


def _refusal(call: str, status: int, text: str) -> KubeError:
    """The refusal in an answer that is no JSON when all goes well."""
    try:
        said: Any = json.loads(text)
    except ValueError:
        said = {}
    if not isinstance(said, dict):
        said = {}
    message = said.get("message") or text[:300]
    return KubeError(call, status=status, reason=said.get("reason", ""), message=message)


def operations(before: Mapping[str, Any], after: Mapping[str, Any], *, path: str, keys: Sequence[str]) -> list[Object]:
    """JSON patch that makes these keys of an object what they are in another one."""
    found: list[Object] = []
    for key in keys:
        if key in after:
            found.append({"op": "add", "path": f"{path}/{key}", "value": after[key]})
        elif key in before:
            found.append({"op": "remove", "path": f"{path}/{key}"})
    return found

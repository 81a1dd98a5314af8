"""The cluster as a person uses it: with the kubeconfig's credentials, and with refusals in words.

Slow to import (the client brings a model of every kind), so commands import it once they know that they need it.
"""

import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from rewardpool_api import RewardPool, names
from rewardpool_cli.errors import CommandError, RefusedError
from rewardpool_cli.explain.evidence import Evidence, newest_warnings
from rewardpool_cli.program import program
from rewardpool_cli.targets import Target
from rewardpool_kube.client import Kube
from rewardpool_kube.configuration import Access, is_configured, load_access
from rewardpool_kube.errors import CredentialsError, KubeError, KubeUnreachableError
from rewardpool_kube.resources import DEPLOYMENTS, EVENTS, PODS, POOLS, Object
from rewardpool_operator.kubernetes.stored_pool import StoredPool

FIELD_MANAGER: Final = "rewardpool-cli"
MAX_EVENTS: Final = 500
_FORBIDDEN: Final = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"(?: in API group "[^"]*")?'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """An API server, and where in it the user is."""

    kube: Kube
    namespace: str
    context: str | None = None
    """Context of the kubeconfig; None in a pod."""

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
        about_pods = "type=Warning,regarding.kind=Pod"
        events = await guarded("events", self.kube.list(EVENTS, self.namespace, fields=about_pods, limit=MAX_EVENTS))
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
    access = await _access(target.context, environ)
    kube = Kube(access.configuration, field_manager=FIELD_MANAGER)
    try:
        async with kube:
            yield Cluster(kube=kube, namespace=target.namespace or access.namespace, context=access.context)
    except KubeUnreachableError as error:
        raise CommandError(
            f"the API server {kube.server} does not answer ({error}): see that the cluster runs and that"
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
    return (await _access(context, environ)).namespace


async def _access(context: str | None, environ: Mapping[str, str]) -> Access:
    if not is_configured(environ):
        raise RefusedError("no cluster is configured: set $KUBECONFIG, or say --local for pools of this machine")
    try:
        return await load_access(environ, context=context)
    except CredentialsError as error:
        raise RefusedError(
            f"no cluster can be asked: {error}; set $KUBECONFIG or --context, or say --local for pools of this machine"
        ) from None


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
    """Return the meaning of a refusal, and who can help."""
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


def operations(before: Mapping[str, Any], after: Mapping[str, Any], *, path: str, keys: Sequence[str]) -> list[Object]:
    """JSON patch that makes these keys of an object what they are in another one."""
    found: list[Object] = []
    for key in keys:
        if key in after:
            found.append({"op": "add", "path": f"{path}/{key}", "value": after[key]})
        elif key in before:
            found.append({"op": "remove", "path": f"{path}/{key}"})
    return found

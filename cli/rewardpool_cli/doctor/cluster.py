"""Checks of the API server: its answers, RewardPools as this client knows them, and the user's rights.

Everything asked but the operator's version takes no more rights than every user has: the versions and schemas that an
API server publishes, and reviews of one's own rights.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Final

from rewardpool_api import names
from rewardpool_api.schema import custom_resource_definition
from rewardpool_cli.cluster import Cluster, connect, in_words
from rewardpool_cli.doctor.finding import Finding, State
from rewardpool_cli.errors import CommandError
from rewardpool_cli.targets import Target
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_kube.resources import DEPLOYMENTS, Resource

CALL_SECONDS: Final = 5.0
LEAST_MINOR: Final = 30  # of Kubernetes 1.x
RIGHTS: Final = {"get": True, "list": True, "create": False}
"""Rights on rewardpools, and whether pools cannot be used without it: who trains makes none."""
MOST_NAMED: Final = 3

_CRD: Final = f"{names.PLURAL}.{names.GROUP}"
_VERSION_LABEL: Final = "app.kubernetes.io/version"
_OPERATOR: Final = "app.kubernetes.io/component=operator,app.kubernetes.io/part-of=rewardpool"
_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_INSTALL: Final = "install the chart, or `rewardpool crd | kubectl apply --server-side -f -`, as an administrator"
_FIRST: Final = "repair the API server's line first"


@dataclass(frozen=True)
class Unknown:
    """Why something is not known."""

    why: str
    answered: bool = True
    """True if the API server said it, rather than its silence."""


@dataclass(frozen=True, kw_only=True)
class ClusterAnswers:
    """Answers of the API server."""

    version: str | Unknown
    served: Sequence[str] | Unknown
    """Versions of RewardPools; none where it knows no RewardPools."""
    fields: frozenset[str] | Unknown
    """Fields of a pool in this client's version, by path."""
    operators: Mapping[str, str] | Unknown
    """Version by NAMESPACE/NAME of each operator that the chart installed."""
    rights: Mapping[str, bool | Unknown]
    """Verb → whether the user has it on rewardpools."""


def check(target: Target, environ: Mapping[str, str]) -> list[Finding]:
    """All lines about the cluster of a target."""
    return asyncio.run(_check(target, environ))


async def _check(target: Target, environ: Mapping[str, str]) -> list[Finding]:
    async with AsyncExitStack() as stack:
        try:
            # A plugin of the kubeconfig may fetch credentials.
            async with asyncio.timeout(CALL_SECONDS):
                cluster = await stack.enter_async_context(connect(target, environ=environ))
        except (CommandError, TimeoutError) as error:
            found = str(error) or f"its credentials are not there within {CALL_SECONDS:.0f} s"
            remedy = "`kubectl config get-contexts` shows what there is; $KUBECONFIG and --context choose"
            return [_line("kubeconfig", "failed", found, remedy, essential=True)]
        where = f"context {cluster.context}" if cluster.context else "the pod's ServiceAccount"
        found = f"{where}, {cluster.kube.server}, namespace {cluster.namespace}"
        return [_line("kubeconfig", "ok", found), *lines(await _observe(cluster), namespace=cluster.namespace)]


async def _observe(cluster: Cluster) -> ClusterAnswers:
    version, served, fields, operators, *rights = await asyncio.gather(
        _answered(_version(cluster)),
        _answered(_served(cluster)),
        _answered(_fields(cluster)),
        _answered(_operators(cluster)),
        *(_answered(_may(cluster, verb)) for verb in RIGHTS),
    )
    granted = dict(zip(RIGHTS, rights, strict=True))
    return ClusterAnswers(version=version, served=served, fields=fields, operators=operators, rights=granted)


async def _answered(call: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await call
    except TimeoutError:
        return Unknown(f"no answer within {CALL_SECONDS:.0f} s", answered=False)
    except KubeUnreachableError as error:
        return Unknown(str(error), answered=False)
    except KubeError as error:
        return Unknown(in_words(error))
    except (ValueError, KeyError, TypeError) as error:
        return Unknown(f"what answers is no API server: {type(error).__name__}: {error}")


async def _version(cluster: Cluster) -> str:
    return str(json.loads(await cluster.kube.text("/version"))["gitVersion"])


async def _served(cluster: Cluster) -> list[str]:
    groups = json.loads(await cluster.kube.text("/apis"))["groups"]
    return [each["version"] for group in groups if group["name"] == names.GROUP for each in group["versions"]]


async def _fields(cluster: Cluster) -> frozenset[str]:
    published = json.loads(await cluster.kube.text(f"/openapi/v3/apis/{names.API_VERSION}"))
    pool = next(
        schema
        for schema in published["components"]["schemas"].values()
        if {"kind": names.KIND, "group": names.GROUP, "version": names.VERSION}
        in schema.get("x-kubernetes-group-version-kind", [])
    )
    return fields_of(pool)


async def _operators(cluster: Cluster) -> dict[str, str]:
    found = [each["metadata"] for each in await cluster.kube.list(DEPLOYMENTS, "", selector=_OPERATOR)]
    return {f"{each['namespace']}/{each['name']}": str(each["labels"].get(_VERSION_LABEL)) for each in found}


async def _may(cluster: Cluster, verb: str) -> bool:
    attributes = {"group": names.GROUP, "resource": names.PLURAL, "verb": verb, "namespace": cluster.namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return (await cluster.kube.review(_REVIEWS, review)).get("allowed") is True


def lines(seen: ClusterAnswers, *, namespace: str) -> list[Finding]:
    """From what was said to lines; pure."""
    if isinstance(seen.version, Unknown) and not seen.version.answered:
        # One reason, said once.
        seen = replace(seen, **{name: _unsaid(getattr(seen, name)) for name in ("served", "fields", "operators")})
        seen = replace(seen, rights={verb: _unsaid(allowed) for verb, allowed in seen.rights.items()})
    return [
        _version_line(seen.version),
        _crd_line(seen),
        _operator_line(seen.operators),
        *_right_lines(seen, namespace),
    ]


def _unsaid(said: Any) -> Any:
    return Unknown("", answered=False) if isinstance(said, Unknown) and not said.answered else said


def _version_line(version: str | Unknown) -> Finding:
    name = "API server"
    if isinstance(version, Unknown):
        remedy = (
            "renew the credentials, or choose another --context"
            if version.answered
            else "is the address right, and is a VPN or $HTTPS_PROXY needed? `kubectl cluster-info` asks the same"
        )
        return _line(name, "failed", version.why, remedy, essential=True)
    found = re.match(r"v(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < (1, LEAST_MINOR):
        return _line(name, "warning", version, f"pools' pods need Kubernetes 1.{LEAST_MINOR}: upgrade the cluster")
    return _line(name, "ok", version)


def _crd_line(seen: ClusterAnswers) -> Finding:
    name = f"CRD {_CRD}"
    if isinstance(seen.served, Unknown):
        return _line(name, "failed", _not_known(seen.served), _FIRST, essential=True)
    if not seen.served:
        return _line(name, "missing", "the cluster has no RewardPools", _INSTALL, essential=True)
    if names.VERSION not in seen.served:
        found = f"the cluster has {', '.join(seen.served)}, and this program speaks {names.VERSION}"
        return _line(
            name, "failed", found, f"install the rewardpool of the cluster's chart, or {_INSTALL}", essential=True
        )
    if isinstance(seen.fields, Unknown):
        remedy = "pools can be used; that their fields are those of this program is not known"
        return _line(name, "warning", f"{names.VERSION}, its schema cannot be read: {seen.fields.why}", remedy)
    ours = fields_of(custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    older, newer = sorted(ours - seen.fields), sorted(seen.fields - ours)
    if older:
        found = f"{names.VERSION}, older than this program: it has no {_some(older)}"
        return _line(name, "warning", found, f"upgrade it before you use them: {_INSTALL}")
    if newer:
        found = f"{names.VERSION}, newer than this program, which does not know {_some(newer)}"
        return _line(name, "warning", found, "install the rewardpool of the cluster's chart")
    return _line(name, "ok", f"{names.VERSION}, with this program's fields")


def _operator_line(operators: Mapping[str, str] | Unknown) -> Finding:
    name, ours = "operator", metadata.version("rewardpool")
    if isinstance(operators, Unknown):
        if not operators.answered:
            return _line(name, "failed", _not_known(operators), _FIRST)
        remedy = f"nothing needs it; who installed it sees it in the Deployment's label {_VERSION_LABEL}"
        return _line(name, "warning", f"its version is {_not_known(operators)}", remedy)
    if not operators:
        return _line(name, "missing", "the chart installed none", "install the chart: without it no pool changes")
    found = "; ".join(f"{version} ({where})" for where, version in sorted(operators.items()))
    if set(operators.values()) == {ours}:
        return _line(name, "ok", found)
    remedy = "both work together; install the same version for what is new in one of them"
    return _line(name, "warning", f"{found}, and this program is {ours}", remedy)


def _right_lines(seen: ClusterAnswers, namespace: str) -> Iterator[Finding]:
    for verb, allowed in seen.rights.items():
        name, essential = f"right to {verb} {names.PLURAL}", RIGHTS[verb]
        if isinstance(allowed, Unknown):
            yield _line(name, "failed", _not_known(allowed), _FIRST, essential=essential)
        elif allowed:
            yield _line(name, "ok", f"in namespace {namespace}")
        else:
            role = "edit" if verb == "create" else "view"
            remedy = f"Kubernetes' role `{role}` allows it: ask an administrator to bind it there"
            yield _line(name, "missing", f"not in namespace {namespace}", remedy, essential=essential)


def _not_known(unknown: Unknown) -> str:
    return f"not known: {unknown.why}" if unknown.why else "not known"


def fields_of(schema: Mapping[str, Any], path: str = "") -> frozenset[str]:
    """Paths of a schema's own fields, those of lists' items among them; not of `metadata`, which every object has."""
    found: set[str] = set()
    for name, field in (schema.get("properties") or {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        here = f"{path}.{name}" if path else name
        found |= {here, *fields_of(field, here)}
    items = schema.get("items")
    return frozenset(found | fields_of(items, f"{path}[]") if items else found)


def _some(fields: Sequence[str]) -> str:
    more = len(fields) - MOST_NAMED
    return ", ".join(fields[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _line(name: str, state: State, found: str, remedy: str = "", *, essential: bool = False) -> Finding:
    return Finding(place="cluster", name=name, state=state, found=found, remedy=remedy, essential=essential)

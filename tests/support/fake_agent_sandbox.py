"""A fake of agent-sandbox: its kinds, written from their documented fields, and a controller that answers claims.

As the real one (v0.5.6) it makes a Sandbox of the claim's name from the template of the warm pool, and a pod of that
name with the template's labels. Each owns the next, so the garbage collector ends them with the claim, whose status
mirrors the pod. Nothing is kept warm beside what a test makes.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Self

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from cluster.control_plane import ControlPlane
from rewardpool_kube.resources import SANDBOX_CLAIMS, SANDBOX_TEMPLATES, SANDBOX_WARM_POOLS

Object = dict[str, Any]
EXTENSIONS: Final = (SANDBOX_CLAIMS.group, SANDBOX_CLAIMS.version)
CORE: Final = ("agents.x-k8s.io", "v1beta1")
CLAIM_UID: Final = "agents.x-k8s.io/claim-uid"
LOOK_SECONDS: Final = 0.2


def _object(required: str = "", **properties: Any) -> Object:
    return {"type": "object", "properties": properties, **({"required": [required]} if required else {})}


TEXT: Final = {"type": "string"}
TEXTS: Final = {"type": "object", "additionalProperties": TEXT}
ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NAMED: Final = _object("name", name=TEXT)
STATUS: Final = _object(
    conditions={
        "type": "array",
        "items": _object(
            "type",
            type=TEXT,
            status=TEXT,
            reason=TEXT,
            message=TEXT,
            lastTransitionTime=TEXT,
            observedGeneration={"type": "integer"},
        ),
    },
    sandbox=_object(name=TEXT, podIPs={"type": "array", "items": TEXT}),
)
POD: Final = _object("spec", metadata=_object(labels=TEXTS, annotations=TEXTS), spec=ANYTHING)
KINDS: Final = {
    "Sandbox": (CORE, "sandboxes", _object(podTemplate=POD, service={"type": "boolean"})),
    "SandboxTemplate": (
        EXTENSIONS,
        SANDBOX_TEMPLATES.plural,
        _object(
            "podTemplate",
            podTemplate=POD,
            service={"type": "boolean"},
            networkPolicyManagement={"type": "string", "enum": ["Managed", "Unmanaged"], "default": "Managed"},
        ),
    ),
    "SandboxWarmPool": (
        EXTENSIONS,
        SANDBOX_WARM_POOLS.plural,
        _object(
            "sandboxTemplateRef", replicas={"type": "integer", "minimum": 0, "default": 1}, sandboxTemplateRef=NAMED
        ),
    ),
    "SandboxClaim": (
        EXTENSIONS,
        SANDBOX_CLAIMS.plural,
        _object("warmPoolRef", warmPoolRef=NAMED, additionalPodMetadata=_object(labels=TEXTS, annotations=TEXTS)),
    ),
}


def crds() -> list[Object]:
    """The CustomResourceDefinitions."""
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": _object("spec", spec=spec, status=STATUS)},
                        "subresources": {"status": {}},
                    }
                ],
            },
        }
        for kind, ((group, version), plural, spec) in KINDS.items()
    ]


class FakeAgentSandbox:
    """Answers the claims of one namespace, in a thread of its own; a context manager."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._namespace = namespace
        self.api_client = config.new_client_from_config(str(plane.kubeconfig))
        self._objects = client.CustomObjectsApi(self.api_client)
        self._pods = client.CoreV1Api(self.api_client)
        self.refusal: tuple[str, str] | None = None
        """Reason and message by which claims that have no sandbox are refused; None where they are answered."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake agent-sandbox")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=20)

    def claims(self) -> list[Object]:
        """Those that are not being deleted."""
        found = self._objects.list_namespaced_custom_object(*EXTENSIONS, self._namespace, SANDBOX_CLAIMS.plural)
        return [claim for claim in found["items"] if "deletionTimestamp" not in claim["metadata"]]

    def expire(self, claim: Object) -> None:
        """End a claim as at its shutdownTime: the sandbox goes, the claim says why and stays."""
        sandbox = claim["status"]["sandbox"]["name"]
        with self._lock:
            self._objects.delete_namespaced_custom_object(*CORE, self._namespace, "sandboxes", sandbox)
            self._tell(claim["metadata"]["name"], {}, "ClaimExpired", "Claim expired. Sandbox cleanup initiated.")

    def keep_warm(self, pool: str, name: str) -> None:
        """Make the sandbox of that name for nobody yet, as a warm pool with replicas does."""
        owner = self._objects.get_namespaced_custom_object(
            *EXTENSIONS, self._namespace, SANDBOX_WARM_POOLS.plural, pool
        )
        self._make(name, pool, {**owner, "kind": "SandboxWarmPool"}, {})

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            # What is written meanwhile, or deleted, is looked at again.
            with contextlib.suppress(ApiException), self._lock:
                for claim in self.claims():
                    self._answer(claim)

    def _answer(self, claim: Object) -> None:
        name, status = claim["metadata"]["name"], claim.get("status") or {}
        reason = next((one["reason"] for one in status.get("conditions", [])), "")
        if reason == "ClaimExpired":
            return
        if "sandbox" not in status:
            if self.refusal is not None:
                self._tell(name, {}, *self.refusal)
                return
            pool = claim["spec"]["warmPoolRef"]["name"]
            self._make(name, pool, claim, {CLAIM_UID: claim["metadata"]["uid"]})
        answer: Any = self._pods.read_namespaced_pod(name, self._namespace, _preload_content=False)
        pod = json.loads(answer.data)["status"]
        ready = any((one["type"], one["status"]) == ("Ready", "True") for one in pod.get("conditions", []))
        sandbox = {"name": name, "podIPs": [one["ip"] for one in pod.get("podIPs", [])]}
        self._tell(name, sandbox, "DependenciesReady" if ready else "DependenciesNotReady", "", ready=ready)

    def _make(self, name: str, pool: str, owner: Object, labels: Mapping[str, str]) -> None:
        get = self._objects.get_namespaced_custom_object
        warm = get(*EXTENSIONS, self._namespace, SANDBOX_WARM_POOLS.plural, pool)
        reference = warm["spec"]["sandboxTemplateRef"]["name"]
        template = get(*EXTENSIONS, self._namespace, SANDBOX_TEMPLATES.plural, reference)["spec"]["podTemplate"]
        metadata = template.get("metadata", {})
        pod = {**template, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **labels}}}
        body = {
            "apiVersion": "/".join(CORE),
            "kind": "Sandbox",
            "metadata": {"name": name, "ownerReferences": [_owner(owner)]},
            "spec": {"podTemplate": pod, "service": False},
        }
        make: Callable[[], Object] = lambda: self._objects.create_namespaced_custom_object(  # noqa: E731
            *CORE, self._namespace, "sandboxes", body
        )
        sandbox = _made(make) or get(*CORE, self._namespace, "sandboxes", name)
        pod = {**pod, "metadata": {**pod["metadata"], "name": name, "ownerReferences": [_owner(sandbox)]}}
        _made(lambda: self._pods.create_namespaced_pod(self._namespace, pod))

    def _tell(self, name: str, sandbox: Object, reason: str, message: str, *, ready: bool = False) -> None:
        condition = {"type": "Ready", "status": str(ready), "reason": reason, "message": message}
        condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"conditions": [condition], **({"sandbox": sandbox} if sandbox else {})}
        self._objects.patch_namespaced_custom_object_status(
            *EXTENSIONS, self._namespace, SANDBOX_CLAIMS.plural, name, {"status": status}
        )


def _owner(found: Object) -> Object:
    metadata = found["metadata"]
    owner = {"apiVersion": found["apiVersion"], "kind": found["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return {**owner, "controller": True, "blockOwnerDeletion": True}


def _made(make: Callable[[], Any]) -> Any:
    """What was made; None where it is there already."""
    try:
        return make()
    except ApiException as error:
        if error.status != 409:
            raise
        return None

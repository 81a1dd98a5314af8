"""What people do to pools: make, edit, scale, roll back, suspend, delete, and put hands on what the operator made."""

import copy
import random
from typing import Any, Final

from simulation.api_server import ApiServer, Object, Refused
from simulation.cluster import BAD_IMAGE, Cluster

from rewardpool_api import names
from rewardpool_api.times import rfc3339

STRANGER: Final = "theirs"
"""First letters of what has a pool's label and belongs to others."""
GOLDEN: Final = "golden.jsonl"


def manifest(namespace: str, name: str, *, mark: str, flavor: str, chance: random.Random) -> Object:
    """A pool as somebody would write it; `mark` tells one edit from the next."""
    spec: Object = {
        "model": {"source": "pvc://models/rm"},
        "engine": {"name": "vllm", "env": [{"name": "MARK", "value": mark}]},
        "worker": {"gpus": 1, "drainSeconds": chance.choice([5, 30, 60])},
        "router": {"replicas": chance.choice([1, 1, 2]), "flavor": flavor, "requestTimeoutSeconds": 60},
        "rollout": {
            "strategy": chance.choice(["Auto", "Auto", "Surge", "Replace"]),
            "progressDeadlineSeconds": chance.choice([60, 120]),
        },
    }
    if chance.random() < 0.3:
        spec["autoscaling"] = {
            "minReplicas": chance.choice([0, 1, 1]),
            "maxReplicas": chance.choice([2, 3]),
            "cooldownSeconds": 60,
            "scaleDown": {"stabilizationWindowSeconds": 30},
            "policy": chance.choice(
                [
                    {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}},
                    {"type": "DrainTime", "drainTime": {"targetSeconds": 10}},
                    {"type": "Demand", "demand": {"drainSeconds": 5}},
                ]
            ),
        }
    else:
        spec["replicas"] = chance.choice([1, 2, 2, 3])
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
    }


class People:
    """They act on pools by name.

    Args:
        server: what they talk to.
        cluster: knows which specs are broken.
    """

    def __init__(self, server: ApiServer, cluster: Cluster) -> None:
        self._server, self._cluster = server, cluster
        self._marks = 0
        self._before: dict[tuple[str, str], list[Object]] = {}

    def make(self, namespace: str, name: str, chance: random.Random) -> None:
        flavor = chance.choice(["sglang-router", "smg"])
        self._marks += 1
        self._server.create(names.KIND, manifest(namespace, name, mark=f"m{self._marks}", flavor=flavor, chance=chance))

    def edit(self, pool: Object, chance: random.Random) -> str:
        return self._change(pool, engine=self._engine(pool))

    def edit_to_crash(self, pool: Object, chance: random.Random) -> str:
        said = self._change(pool, engine=self._engine(pool))
        self._cluster.crashes.add(f"m{self._marks}")
        return said

    def edit_to_hang(self, pool: Object, chance: random.Random) -> str:
        said = self._change(pool, engine=self._engine(pool))
        self._cluster.hangs.add(f"m{self._marks}")
        return said

    def edit_to_bad_image(self, pool: Object, chance: random.Random) -> str:
        return self._change(pool, engine={**self._engine(pool), "image": BAD_IMAGE})

    def larger_workers(self, pool: Object, chance: random.Random) -> str:
        return self._change(pool, worker={**pool["spec"]["worker"], "gpus": chance.choice([1, 2])})

    def scale(self, pool: Object, chance: random.Random) -> str:
        if "autoscaling" in pool["spec"]:
            return self._change(pool, autoscaling={**pool["spec"]["autoscaling"], "maxReplicas": chance.randint(1, 4)})
        return self._change(pool, replicas=chance.randint(0, 4))

    def scale_routers(self, pool: Object, chance: random.Random) -> str:
        return self._change(pool, router={**pool["spec"]["router"], "replicas": chance.randint(1, 3)})

    def change_flavor(self, pool: Object, chance: random.Random) -> str:
        flavor = {"smg": "sglang-router", "sglang-router": "smg"}[pool["spec"]["router"]["flavor"]]
        return self._change(pool, router={**pool["spec"]["router"], "flavor": flavor})

    def suspend(self, pool: Object, chance: random.Random) -> str:
        return self._change(pool, suspend=not pool["spec"].get("suspend", False))

    def pause(self, pool: Object, chance: random.Random) -> str:
        rollout = pool["spec"]["rollout"]
        return self._change(pool, rollout={**rollout, "paused": not rollout.get("paused", False)})

    def roll_back(self, pool: Object, chance: random.Random) -> str:
        specs = self._before.get(_key(pool), [])
        if not specs:
            return "nothing to go back to"
        self._write(pool, copy.deepcopy(specs[-1]))
        return "back to the spec before"

    def recreate(self, pool: Object, chance: random.Random) -> str:
        self._server.delete(names.KIND, *_key(pool))
        self.make_again(pool)
        return "deleted and made again"

    def make_again(self, pool: Object) -> None:
        """Apply the manifest of a pool that was deleted."""
        fresh = {name: pool["metadata"][name] for name in ("name", "namespace")}
        self._server.create(names.KIND, {**pool, "metadata": fresh, "status": {}})

    def delete(self, pool: Object, chance: random.Random) -> str:
        self._server.delete(names.KIND, *_key(pool))
        return "deleted for good"

    def delete_held(self, pool: Object, chance: random.Random) -> str:
        """Somebody else's finalizer keeps the pool, and no one takes it away."""
        found = self._server.get(names.KIND, *_key(pool)) or pool
        metadata = {**found["metadata"], "finalizers": ["example.com/backup"]}
        self._server._replace(names.KIND, found, {**found, "metadata": metadata}, "metadata")
        self._server.delete(names.KIND, *_key(pool))
        return "deleted, and kept by a finalizer"

    def rotate_key(self, pool: Object, chance: random.Random) -> str:
        patch = {"metadata": {"annotations": {names.ANNOTATION_ROTATE_KEY: str(chance.randint(1, 1000))}}}
        self._server.patch(names.KIND, *_key(pool), patch)
        return "asked for new keys"

    def restart(self, pool: Object, chance: random.Random) -> str:
        patch = {"metadata": {"annotations": {names.ANNOTATION_RESTARTED_AT: str(chance.randint(1, 1000))}}}
        self._server.patch(names.KIND, *_key(pool), patch)
        return "asked for a restart"

    def delete_owned(self, pool: Object, chance: random.Random) -> str:
        kinds = ("Deployment", "Service", "Secret", "ConfigMap", "PodDisruptionBudget", "Pod")
        found = [
            (kind, one["metadata"])
            for kind in kinds
            for one in self._server.selected(kind, **{names.LABEL_POOL: pool["metadata"]["name"]})
        ]
        if not found:
            return "nothing to delete"
        kind, metadata = chance.choice(found)
        with self._cluster.deleting("people"):
            self._server.delete(kind, metadata["namespace"], metadata["name"])
        return f"deleted {kind} {metadata['name']}"

    def scale_deployment(self, pool: Object, chance: random.Random) -> str:
        labels = {names.LABEL_POOL: pool["metadata"]["name"], names.LABEL_COMPONENT: names.COMPONENT_WORKER}
        found = list(self._server.selected("Deployment", **labels))
        if not found:
            return "nothing to scale"
        metadata = chance.choice(found)["metadata"]
        replicas = chance.randint(0, 3)
        self._cluster.scaled_by_hand.add((metadata["namespace"], metadata["name"]))
        self._server.patch("Deployment", metadata["namespace"], metadata["name"], {"spec": {"replicas": replicas}})
        return f"scaled {metadata['name']} to {replicas} by hand"

    def compare(self, pool: Object, chance: random.Random) -> str:
        """Have the scores of a new revision compared with what is expected, or with those of the one before."""
        namespace, name = _key(pool)
        ref, expected = {"name": f"{name}-golden", "key": GOLDEN}, chance.choice(["", ', "score": 0.5'])
        if self._server.get("ConfigMap", namespace, ref["name"]) is None:
            metadata = {"namespace": namespace, "name": ref["name"]}
            lines = "".join(f'{{"text": "{text}"{expected}}}\n' for text in "abc")
            self._server.create("ConfigMap", {"metadata": metadata, "data": {GOLDEN: lines}})
        parity = {"parity": {"goldenSetRef": ref, "maxAbsDiff": 0.1}, "progressDeadlineSeconds": 600}
        return self._change(pool, rollout={**pool["spec"]["rollout"], **parity})

    def use_our_label(self, pool: Object, chance: random.Random) -> str:
        """Objects of others have the pool's label, and a great deal of text."""
        namespace, name = _key(pool)
        pod: Object = {"nodeName": "elsewhere", "containers": [{"name": "theirs", "image": "theirs:1"}]}
        specs = {"Pod": pod, "Deployment": {"replicas": 0, "template": {"spec": pod}}, "Service": {"ports": []}}
        kind = chance.choice([*specs])
        self._marks += 1
        metadata = {"namespace": namespace, "name": f"{STRANGER}-{self._marks}", "labels": {names.LABEL_POOL: name}}
        annotations = {"note": "x" * 250_000}
        self._server.create(kind, {"metadata": {**metadata, "annotations": annotations}, "spec": specs[kind]})
        return f"made a {kind} of their own"

    def spoil_status(self, pool: Object, chance: random.Random) -> str:
        """The status has numbers that a version wrote to which they meant nothing."""
        found = self._server.get(names.KIND, *_key(pool)) or pool
        scaling = (found.get("status") or {}).get("scaling")
        if scaling is None:
            return "nothing to spoil"
        rate = {"perReplica": chance.choice([0, -1.0, 1e300]), "inFlight": chance.choice([0, 2**62]), "measured": []}
        rate["time"] = rfc3339(self._server._now())
        self._server.update_status(names.KIND, *_key(pool), scaling={**scaling, "serviceRate": rate})
        return f"wrote the service rate {rate}"

    def _engine(self, pool: Object) -> Object:
        self._marks += 1
        engine = {name: value for name, value in pool["spec"]["engine"].items() if name != "image"}
        return {**engine, "env": [{"name": "MARK", "value": f"m{self._marks}"}]}

    def _change(self, pool: Object, **fields: Any) -> str:
        self._write(pool, {**copy.deepcopy(pool["spec"]), **fields})
        return f"set {fields}"

    def _write(self, pool: Object, spec: Object) -> None:
        self._before.setdefault(_key(pool), []).append(pool["spec"])
        found = self._server.get(names.KIND, *_key(pool))
        if found is None:
            raise Refused(404, "NotFound", pool["metadata"]["name"])
        self._server._replace(names.KIND, found, {**found, "spec": spec}, "")


ACTIONS: Final = (
    "edit",
    "edit",
    "edit_to_crash",
    "edit_to_hang",
    "edit_to_bad_image",
    "larger_workers",
    "scale",
    "scale",
    "scale_routers",
    "change_flavor",
    "suspend",
    "pause",
    "roll_back",
    "roll_back",
    "recreate",
    "delete",
    "delete_held",
    "rotate_key",
    "restart",
    "delete_owned",
    "scale_deployment",
    "compare",
    "use_our_label",
    "spoil_status",
)


def _key(pool: Object) -> tuple[str, str]:
    return pool["metadata"]["namespace"], pool["metadata"]["name"]

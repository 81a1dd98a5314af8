"""Pod templates drawn from the pod's own schema, as an API server publishes it, and pools that have them."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from hypothesis import strategies as st
from support.drawing import Drawn

_WORDS: Final = (
    "worker",
    "router",
    "download",
    "a",
    "/",
    "ALL",
    "SYS_ADMIN",
    "Unconfined",
    "RuntimeDefault",
    "true",
    "",
)
_KEYS: Final = ("cpu", "nvidia.com/gpu", "app", "kueue.x-k8s.io/queue-name", "cdi.k8s.io/gpu", "$patch", "a")
_ODD: Final = st.sampled_from([None, {}, [], [None], "a", 0, True, {"$patch": "delete"}, {"$patch": "replace"}])
_REF: Final = "#/components/schemas/"


class Schemas:
    """Draws what the schemas of an API server let through: few fields of each object, and now and then anything."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self._known: dict[str, Drawn] = {}

    def named(self, name: str) -> Drawn:
        """Objects of this kind."""
        if name not in self._known:
            self._known[name] = st.deferred(lambda: self._of(self._schemas[name]))
        return self._known[name]

    def _of(self, schema: Mapping[str, Any]) -> Drawn:
        for inner in (schema, *schema.get("allOf", ())):
            if "$ref" in inner:
                return self.named(inner["$ref"].removeprefix(_REF))
        if "properties" in schema:
            return self._object(schema)
        if "additionalProperties" in schema:
            return st.dictionaries(st.sampled_from(_KEYS), self._of(schema["additionalProperties"]), max_size=2)
        if schema.get("type") == "array":
            return st.lists(self._or_odd(self._of(schema["items"])), min_size=1, max_size=2)
        return {
            "boolean": st.booleans(),
            "integer": st.integers(-1, 2**31),
            "number": st.integers(0, 9),
        }.get(schema.get("type", ""), st.sampled_from(_WORDS))

    def _object(self, schema: Mapping[str, Any]) -> Drawn:
        fields, required = schema["properties"], schema.get("required", ())
        chosen = st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=2, unique=True)
        return chosen.flatmap(
            lambda names: st.fixed_dictionaries(
                {name: self._or_odd(self._of(fields[name])) for name in dict.fromkeys([*required, *names])}
            )
        )

    @staticmethod
    def _or_odd(drawn: Drawn) -> Drawn:
        return st.integers(0, 9).flatmap(lambda number: drawn if number else _ODD)


def pools(schemas: Schemas) -> Drawn:
    """Specs of pools that would be let through, with up to two things in them that may be anything."""
    template = schemas.named("io.k8s.api.core.v1.PodTemplateSpec")
    pod, container = (schemas.named(f"io.k8s.api.core.v1.{kind}") for kind in ("PodSpec", "Container"))
    volume = schemas.named("io.k8s.api.core.v1.Volume")
    names = st.sampled_from(["worker", "router", "gateway", "download", "other"])
    odd = st.one_of(
        st.tuples(st.just(("podTemplate",)), template),
        st.tuples(st.just(("podTemplate", "spec")), pod),
        st.tuples(
            st.sampled_from([("podTemplate", "spec", "containers"), ("podTemplate", "spec", "initContainers")]),
            st.lists(st.builds(lambda name, one: {**one, "name": name}, names, container), min_size=1, max_size=2),
        ),
        st.tuples(st.just(("podTemplate", "spec", "volumes")), st.lists(volume, min_size=1, max_size=2)),
    )
    return st.builds(
        _with,
        st.sampled_from(_GOOD),
        st.lists(st.tuples(st.sampled_from(["worker", "router", "gateway"]), odd), max_size=1),
        _beside,
    )


_beside: Final[Drawn] = st.fixed_dictionaries(
    {},
    optional={
        "args": st.lists(
            st.one_of(
                st.sampled_from(["--enforce-eager", "--max-num-seqs=2", "8"]),
                st.sampled_from(
                    [
                        "--enforce-eager",
                        "--max-num-seqs=2",
                        "8",
                        "--trust-remote-code",
                        "--Trust_Remote_Code",
                        "-q",
                        "evil",
                    ]
                ),
                st.text("-=_. \n8am", max_size=6),
            ),
            max_size=3,
        ),
        "env": st.lists(
            st.sampled_from(["TZ", "OMP_NUM_THREADS", "HF_ENDPOINT", "NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD"]),
            max_size=2,
            unique=True,
        ).map(lambda names: [{"name": name, "value": "a"} for name in names]),
        "labels": st.dictionaries(st.sampled_from(["app", "kueue.x-k8s.io/queue-name"]), st.just("a"), max_size=2),
        "annotations": st.dictionaries(st.sampled_from(["cdi.k8s.io/gpu", "a"]), st.just("a"), max_size=1),
        "gpuResource": st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "devices/fuse"]),
    },
)

_GOOD: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"nodeSelector": {"gpu": "h100"}, "tolerations": [{"operator": "Exists"}]},
    {"containers": [{"name": "worker", "resources": {"limits": {"memory": "1Gi"}}}]},
    {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}], "securityContext": {"runAsUser": 1000}},
)
"""Specs of a worker's pod that the lists have."""


def _with(pod: dict[str, Any], odd: list[Any], beside: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"model": {"source": "hf://org/model"}, "worker": {"podTemplate": {"spec": deepcopy(pod)}}}
    spec["engine"] = {name: beside[name] for name in ("args", "env") if name in beside}
    spec["worker"] |= {name: beside[name] for name in ("labels", "annotations", "gpuResource") if name in beside}
    for part, (path, value) in odd:
        if part == "gateway":
            spec["model"]["type"] = "Teacher"
        place = spec.setdefault(part, {})
        for step in path[:-1]:
            place = place.setdefault(step, {})
        place[path[-1]] = value
    return spec

"""RewardPool manifests, drawn from the CRD's own schema: right, and one mutation away from that.

Rules between fields are kept for the greater part, or the API server would refuse nearly all; it has the last word.
"""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml
from hypothesis import strategies as st
from support.drawing import Drawn, anything_kept, from_schema, objects, texts

from rewardpool_api import names

CRD: Final = Path(__file__).resolve().parents[2] / "crds" / "rewardpool.dev_rewardpools.yaml"
(_VERSION,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
_PROPERTIES: Final = _VERSION["schema"]["openAPIV3Schema"]["properties"]
SPEC_SCHEMA: Final = _PROPERTIES["spec"]
STATUS_SCHEMA: Final = _PROPERTIES["status"]

_SPECS: Final = from_schema(SPEC_SCHEMA)

Spec = dict[str, Any]
Path_ = tuple[str | int, ...]

_MODELS: Final = (
    ("python://rewards:score", "Function", "python"),
    ("python://a.b.c:d", "Function", "python"),
    ("hf://org/model", "Discriminative", "vllm"),
    ("hf://org/model", "Discriminative", "sglang"),
    ("hf://org/model", "Discriminative", "transformers"),
    ("s3://bucket/a/b", "Discriminative", "vllm"),
    ("pvc://claim/path", "Generative", "vllm"),
    ("file:///models/rm", "Generative", "sglang"),
    ("hf://org/model", "Teacher", "vllm"),
)
_WITHOUT_STEPS: Final = (
    {"type": "Classifier", "weights": [0.5, -1.0]},
    {"type": "Classifier", "weights": [1.0], "labels": ["é"]},
    {"type": "LMHead", "token": "!"},
    {"type": "LMHead", "yesToken": "yes", "noToken": "no"},
    {"type": "TokenLevel", "aggregate": "last"},
)
_HEADS: Final[dict[str, tuple[dict[str, Any] | None, ...]]] = {
    "vllm": (
        *_WITHOUT_STEPS,
        {"type": "TokenLevel", "stepToken": "<s>", "aggregate": "product"},
        {"type": "TokenLevel", "stepToken": "<s>", "yesToken": "+", "noToken": "-", "aggregate": "min"},
    ),
    "sglang": _WITHOUT_STEPS,
    "transformers": (None,),
    "Generative": (None,),
    "Function": (None,),
    "Teacher": (None,),
}
_SETTINGS: Final = {"QueueDepth": "queueDepth", "DrainTime": "drainTime", "Demand": "demand"}

_containers: Final[Drawn] = st.lists(
    objects(
        {},
        name=st.one_of(st.sampled_from(["worker", "router", "gateway", "download", "side"]), texts),
        image=texts,
        env=st.one_of(st.lists(objects({}, name=texts, value=texts), max_size=2), anything_kept),
        volumeMounts=st.one_of(st.lists(objects({}, name=texts, mountPath=texts), max_size=2), anything_kept),
        ports=anything_kept,
        resources=anything_kept,
        args=anything_kept,
    ),
    max_size=2,
)
pod_templates: Final[Drawn] = st.one_of(
    st.just({}),
    objects(
        {},
        metadata=st.one_of(
            objects(
                {},
                labels=st.one_of(st.dictionaries(st.sampled_from(["a", names.LABEL_POOL]), texts), anything_kept),
                annotations=anything_kept,
            ),
            anything_kept,
        ),
        spec=st.one_of(
            objects(
                {},
                containers=st.one_of(_containers, anything_kept),
                initContainers=st.one_of(_containers, anything_kept),
                volumes=st.one_of(
                    st.lists(objects({}, name=texts, emptyDir=st.just({}), secret=anything_kept), max_size=2),
                    anything_kept,
                ),
                nodeSelector=anything_kept,
                tolerations=anything_kept,
                priorityClassName=texts,
            ),
            anything_kept,
        ),
    ),
    st.dictionaries(texts, anything_kept, max_size=2),
)
"""Nothing in the CRD says what is in it; the API server finds out with the Deployment."""


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """What the schema lets through, and most rules too."""
    spec: Spec = draw(_SPECS)
    source, kind, engine = draw(st.sampled_from(_MODELS))
    model = spec["model"] = {**spec["model"], "source": source, "type": kind}
    if not source.startswith("s3://"):
        model.pop("credentialsSecretRef", None)
    if not source.startswith(("s3://", "hf://")):
        model.pop("cache", None)
    if kind == "Function":
        model.pop("trustRemoteCode", None)
    if kind != "Teacher":
        model.pop("topK", None)
    spec["engine"] = {**spec.get("engine", {}), "name": engine}
    spec["engine"].pop("sleep", None)
    if "head" in spec["model"]:
        spec["model"]["head"] = draw(st.sampled_from(_HEADS[engine if kind == "Discriminative" else kind]))
        if spec["model"]["head"] is None:
            del spec["model"]["head"]
    spec["engine"].pop("tensorParallelSize", None)
    for part in ("worker", "router", "gateway"):
        if "podTemplate" in spec.get(part, {}):
            spec[part]["podTemplate"] = draw(pod_templates)
    if spec.get("network", {}).get("policy") == "Disabled":
        spec["network"].pop("namespaces", None)
    if "autoscaling" in spec:
        _fit_autoscaling(spec)
    if kind in ("Generative", "Teacher"):
        spec.get("rollout", {}).pop("parity", None)
    return spec


def _fit_autoscaling(spec: Spec) -> None:
    autoscaling = spec["autoscaling"]
    policies = [autoscaling["policy"]] if "policy" in autoscaling else autoscaling.get("policies", [])
    for policy in policies:
        setting = _SETTINGS.get(policy.get("type", "QueueDepth"))
        for other in set(_SETTINGS.values()) - {setting}:
            policy.pop(other, None)
        if setting and setting not in policy:
            policy[setting] = {"demand": {}, "queueDepth": {"targetPerReplica": 4}, "drainTime": {"targetSeconds": 9}}[
                setting
            ]
    if "policy" in autoscaling or not policies:
        autoscaling.pop("policies", None)
        autoscaling.setdefault("policy", {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}})
    autoscaling["maxReplicas"] = max(autoscaling["maxReplicas"], autoscaling.get("minReplicas", 1))
    spec.pop("replicas", None)


@st.composite
def mutated(draw: st.DrawFn, value: Drawn) -> Any:
    """The value with one thing in it replaced, removed or added."""
    found = deepcopy(draw(value))
    path = draw(st.sampled_from(list(_paths(found))))
    inner = found
    for step in path[:-1]:
        inner = inner[step]
    change = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
    if change == "add" and isinstance(inner[path[-1]], dict):
        inner[path[-1]][draw(texts)] = draw(anything_kept)
    elif change == "remove":
        del inner[path[-1]]
    else:
        inner[path[-1]] = draw(st.one_of(st.none(), anything_kept, st.sampled_from([-1, 2**31, 2**63, 1.5, [], {}])))
    return found


def _paths(value: Any, before: Path_ = ()) -> Iterator[Path_]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, entry in inner:
        yield (*before, step)
        yield from _paths(entry, (*before, step))


pool_annotations: Final[Drawn] = st.dictionaries(
    st.sampled_from([names.ANNOTATION_RESTARTED_AT, names.ANNOTATION_ROTATE_KEY, "rewardpool.dev/other"]),
    texts,
    max_size=2,
)
pool_names: Final[Drawn] = st.one_of(
    st.none(),
    st.none(),
    st.from_regex(r"\A[a-z0-9]([-a-z0-9.]{0,44}[a-z0-9])?\Z"),
    st.sampled_from(["70b-judge", "rm.v2", "a" * 40, "a" * 41, "v2-grpo", "x", "kubernetes"]),
)
"""None leaves the choice to whoever makes the pool."""

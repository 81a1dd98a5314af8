"""One file, two readers: drawn files that a real kubectl and API server take are the same pool to `load_manifest`."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.odd_manifests import mutated, specs

from cluster import binaries
from cluster.control_plane import ControlPlane
from rewardpool_api import ManifestError, dump_manifest, load_manifest, names
from rewardpool_api.pool import RewardPool

pytestmark = pytest.mark.real

NAMESPACE = "read"
SLOW = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=20,
    phases=[Phase.generate],
)


def _number(digits: str) -> int | float:
    """As an API server has it, which writes a large number without an exponent too."""
    return int(digits) if -(2**63) <= int(digits) < 2**63 else float(digits)


class Kubectl:
    """Reads a file, and has the API server judge it and fill its defaults in."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._argv = [program, f"--kubeconfig={kubeconfig}", "create", "--dry-run=server", "-o", "json", "-f", "-"]

    def read(self, content: bytes) -> RewardPool | None:
        """The one pool of the file as it would be stored; None where it is refused."""
        done = subprocess.run(self._argv, input=content, capture_output=True, timeout=60, check=False)
        if done.returncode != 0:
            return None
        text, found = done.stdout.decode().strip(), []
        while text:
            answer, end = json.JSONDecoder(parse_int=_number).raw_decode(text)
            found += answer["items"] if answer["kind"] == "List" else [answer]
            text = text[end:].strip()
        (pool,) = (one for one in found if one["kind"] == names.KIND)
        try:
            return RewardPool.model_validate({part: pool[part] for part in ("metadata", "spec")})
        except ValidationError as error:
            if {detail["loc"][-1] for detail in error.errors()} != {"podTemplate"}:
                raise
            return None  # what no schema can see, and the operator says


@pytest.fixture(scope="module")
def kubectl(control_plane: ControlPlane) -> Iterator[Kubectl]:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    yield Kubectl(binaries.ensure("kubectl")["kubectl"], control_plane.kubeconfig)
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def read_here(content: bytes) -> RewardPool | None:
    try:
        return load_manifest(content)
    except ManifestError:
        return None


def said(pool: RewardPool | None) -> Any:
    """What the two must agree on."""
    if pool is None:
        return None
    shown = dump_manifest(pool)
    templates = [pool.spec.worker.pod_template, pool.spec.router.pod_template]
    # As text: True is 1 and 1.0 is 1 to Python.
    return json.dumps([shown["spec"], templates, pool.metadata.labels, pool.metadata.name], sort_keys=True)


HEAD = f"apiVersion: {names.API_VERSION}\nkind: RewardPool\nmetadata: {{name: p, namespace: {NAMESPACE}}}\nspec:\n"
WORDS = [
    *(
        "yes",
        "No",
        "on",
        "OFF",
        "y",
        "N",
        "true",
        "False",
        "~",
        "null",
        "NULL",
        "tRue",
        "nULL",
        ".inf",
        "-.INF",
        ".NaN",
    ),
    *("<<", "=", "inf", "nan", "2001-01-01", "1:30", "190:20:30.15", "18446744073709551616", "1e400", "4.9e-324"),
    *("!!str 010", "!!int '010'", "!!float 1", "! 1", "!own 1", "!!bool 'no'", "!!null ''", "'010'", '"yes"', "0xG"),
]
scalars = st.one_of(
    st.sampled_from(WORDS),
    st.from_regex(r"\A[-+]?[0-9][0-9_]{0,3}(\.[0-9_]{0,3})?([eE][-+]?[0-9_]{1,2})?\Z"),
    st.from_regex(r"\A[-+]?0[xXoObB]?[0-9a-fA-F_]{0,4}\Z"),
    st.from_regex(r"\A[-+.0-9_eExXoObByYnN]{1,5}\Z").filter(lambda text: text.strip("-")),
    st.from_regex(r"\A[0-9]{1,3}(:[0-9]{1,2}){1,2}(\.[0-9])?\Z"),
    st.integers(-(2**66), 2**66).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)


@SLOW
@given(drawn=st.lists(scalars, min_size=10, max_size=10))
def test_a_scalar_is_the_same_value_to_both(kubectl: Kubectl, drawn: list[str]) -> None:
    body = "  model: {source: hf://a/b}\n  worker:\n    podTemplate:\n      x:\n"
    contents = [(HEAD + body + "".join(f"        - {one}\n" for one in drawn)).encode()]
    if read_here(contents[0]) is None:  # then one by one: a number that JSON lacks hides the others
        contents = [(HEAD + body + f"        - {one}\n").encode() for one in drawn]
    for content in contents:
        assert said(read_here(content)) == said(kubectl.read(content)), content.decode()


FIELDS = {
    "replicas": "  replicas: {}\n",
    "suspend": "  suspend: {}\n",
    "model.revision": "",
    "router": "  router: {}\n",
    "engine.args": "  engine: {{args: [{}]}}\n",
    "engine.env": "  engine: {{env: [{{name: A, value: {}}}]}}\n",
    "engine.dtype": "  engine: {{dtype: {}}}\n",
    "engine.maxModelLen": "  engine: {{maxModelLen: {}}}\n",
    "worker.gpus": "  worker: {{gpus: {}}}\n",
    "worker.labels": "  worker: {{labels: {{a: {}}}}}\n",
    "worker.resources": "  worker: {{resources: {{requests: {{cpu: {}}}}}}}\n",
    "autoscaling.minReplicas": "  autoscaling: {{maxReplicas: 99, minReplicas: {}, policy: {{type: External}}}}\n",
    "rollout.paused": "  rollout: {{paused: {}, progressDeadlineSeconds: 9}}\n",
    "sleep": "  engine: {{sleep: {{maxAbsDiff: {}}}}}\n",
}


@SLOW
@given(field=st.sampled_from(list(FIELDS)), value=scalars)
def test_a_field_is_taken_or_refused_by_both(kubectl: Kubectl, field: str, value: str) -> None:
    assume(value != "<<")
    model = f"  model: {{source: hf://a/b, revision: {value if field == 'model.revision' else 'main'}}}\n"
    content = (HEAD + model + FIELDS[field].format(value)).encode()
    assert said(read_here(content)) == said(kubectl.read(content)), content.decode()


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": NAMESPACE}}


def in_list(pool: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": [CONFIG_MAP, pool]}


def in_own_list(pool: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": names.API_VERSION, "kind": "RewardPoolList", "items": [pool]}


def beside(text: str) -> str:
    return f"---\n{json.dumps(CONFIG_MAP)}\n---\n{text}\n---\n# nothing\n"


WRAPPED = st.sampled_from([lambda pool: pool, in_list, in_own_list])
WRITTEN = st.sampled_from(
    [
        json.dumps,
        lambda value: json.dumps(value, indent="\t", ensure_ascii=False),
        lambda value: yaml.safe_dump(value, allow_unicode=True),
        lambda value: yaml.safe_dump(value, default_flow_style=True, width=40),
        lambda value: yaml.safe_dump(value, default_style='"'),
        lambda value: yaml.safe_dump(value, default_style="|"),
    ]
)
BESIDE = st.sampled_from([lambda text: text, beside, lambda text: f"# a pool\n{text}", lambda text: f"{text}\n...\n"])
ENCODED = st.sampled_from(
    [
        str.encode,
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
        lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    ]
)


@SLOW
@given(
    spec=st.one_of(specs(), mutated(specs())),
    wrapped=WRAPPED,
    written=WRITTEN,
    placed=BESIDE,
    encoded=ENCODED,
    annotations=st.none() | st.dictionaries(st.sampled_from(["a", "b/c"]), st.none() | st.just("x")),
)
def test_a_file_in_any_form_is_the_same_pool_to_both(
    kubectl: Kubectl, spec: Any, wrapped: Any, written: Any, placed: Any, encoded: Any, annotations: Any
) -> None:
    metadata = {"name": "p", "namespace": NAMESPACE, "annotations": annotations}
    pool = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}
    content = encoded(placed(written(wrapped(pool))))
    assert said(read_here(content)) == said(kubectl.read(content)), content.decode(errors="replace")

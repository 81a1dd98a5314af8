"""What a manifest may say, and the words it is refused with."""

import json
from pathlib import Path

import pytest
import yaml

from rewardpool_api import ManifestError, load_manifest

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart" / "pool.yaml"


def manifest(path, value, *, base=None):
    """The quick-start manifest with one value set (or removed, for ...), as JSON."""
    document = base or yaml.safe_load(QUICKSTART.read_text())
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    return json.dumps(document)


def test_the_quickstart_manifest_is_valid():
    assert load_manifest(QUICKSTART).key == "default/quickstart"


def test_defaults_need_not_be_written():
    pool = load_manifest(QUICKSTART)
    assert (pool.spec.router.replicas, pool.spec.rollout.strategy, pool.spec.worker.drain_seconds) == (None, "Auto", 60)


@pytest.mark.parametrize(
    ("model", "stands_for"),
    [
        ({"source": "python://rewards:score"}, ("Function", "python", 0)),
        ({"source": "hf://org/model"}, ("Discriminative", "vllm", 1)),
        ({"source": "hf://org/model", "type": "Generative"}, ("Generative", "vllm", 1)),
        ({"source": "hf://org/model", "type": "Teacher"}, ("Teacher", "vllm", 1)),
    ],
)
def test_a_source_and_a_type_are_a_whole_spec(model, stands_for):
    spec = load_manifest(manifest("spec", {"model": model})).spec
    assert (spec.model.type, spec.engine.name, spec.worker.gpus) == stands_for


def test_transformers_is_deterministic_on_a_cpu_too():
    engine = {"name": "transformers", "deterministic": True}
    given = {"model": {"source": "hf://org/model"}, "engine": engine, "worker": {"gpus": 0}}
    assert load_manifest(manifest("spec", given)).spec.engine.deterministic


def test_what_is_inferred_may_be_written_and_a_function_may_have_a_gpu():
    model = {"source": "python://rewards:score", "type": "Function"}
    spec = load_manifest(manifest("spec", {"model": model, "engine": {"name": "python"}, "worker": {"gpus": 1}})).spec
    assert (spec.model.type, spec.engine.name, spec.worker.gpus) == ("Function", "python", 1)


QUEUE_DEPTH = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}}

BAD = {
    "unknown field": ("spec.modle", {}, 'unknown field "spec.modle"'),
    "unknown nested field": ("spec.engine.dtpye", "x", 'unknown field "spec.engine.dtpye"'),
    "a number as text": ("spec.replicas", "2", 'spec.replicas in body must be of type integer: "string"'),
    "text as a number": ("spec.engine.image", 5, 'spec.engine.image in body must be of type string: "integer"'),
    "a list as a map": ("spec.engine.args", {}, 'spec.engine.args in body must be of type array: "object"'),
    "a truth value as text": ("spec.suspend", "no", 'spec.suspend in body must be of type boolean: "string"'),
    "an unknown engine": (
        "spec.engine.name",
        "vlm",
        'spec.engine.name: Unsupported value: "vlm": supported values: "vllm", "sglang", "transformers", "python"',
    ),
    "a negative number": ("spec.replicas", -1, "spec.replicas in body should be greater than or equal to 0"),
    "too large a number": (
        "spec.router.replicas",
        99,
        "spec.router.replicas in body should be less than or equal to 16",
    ),
    "a source of another kind": ("spec.model.source", "http://x/y", "spec.model.source must be hf://ORG/NAME"),
    "a source that climbs": ("spec.model.source", "file:///a/../b", "spec.model.source must be hf://ORG/NAME"),
    "bounds the wrong way round": (
        "spec.autoscaling",
        {"minReplicas": 5, "maxReplicas": 2, "policy": QUEUE_DEPTH},
        "spec.autoscaling.minReplicas must not be greater than spec.autoscaling.maxReplicas",
    ),
    "replicas beside a policy": (
        "spec.autoscaling",
        {"maxReplicas": 2, "policy": QUEUE_DEPTH},
        "spec.replicas must not be set beside spec.autoscaling unless",
    ),
    "a policy without its block": (
        "spec.autoscaling",
        {"maxReplicas": 2, "policy": {"type": "QueueDepth"}},
        "spec.autoscaling.policy.queueDepth is required when",
    ),
    "a missing required field": (
        "spec.autoscaling",
        {"policy": QUEUE_DEPTH},
        "spec.autoscaling.maxReplicas: Required value",
    ),
    "a model of type Function": (
        "spec.model.type",
        "Function",
        "spec.model.type must be Function when spec.model.source",
    ),
    "a function on vllm": (
        "spec",
        {"model": {"source": "python://rewards:score"}, "engine": {"name": "vllm"}},
        "spec.engine.name must be python when spec.model.source is python://MODULE:FUNCTION, and only then: leave",
    ),
    "a function as a judge": (
        "spec",
        {"model": {"source": "python://rewards:score", "type": "Generative"}},
        "spec.model.type must be Function when spec.model.source is python://MODULE:FUNCTION, and only then: leave",
    ),
    "no model": ("spec", {}, "spec.model: Required value: such as {source: hf://ORG/NAME}"),
    "a model from nowhere": ("spec.model", {}, "spec.model.source: Required value: such as hf://ORG/NAME for a model"),
    "a model split by transformers": (
        "spec.engine",
        {"name": "transformers", "tensorParallelSize": 2},
        "spec.engine.sleep.enabled must be false and spec.engine.tensorParallelSize 1 when spec.engine.name is",
    ),
    "a judge on transformers": (
        "spec",
        {"model": {"source": "hf://org/model", "type": "Generative"}, "engine": {"name": "transformers"}},
        "spec.model.type must be Discriminative when spec.engine.name is transformers",
    ),
    "a teacher on transformers": (
        "spec",
        {"model": {"source": "hf://org/model", "type": "Teacher"}, "engine": {"name": "transformers"}},
        "spec.model.type must be Discriminative when spec.engine.name is transformers: judges that write, and teachers",
    ),
    "a head of a teacher": (
        "spec.model",
        {"source": "hf://org/model", "type": "Teacher", "head": {"type": "LMHead", "token": "!"}},
        "spec.model.head must not be set unless spec.model.type is Discriminative: judges write, functions return",
    ),
    "most likely tokens of a judge": (
        "spec.model",
        {"source": "hf://org/model", "type": "Generative", "topK": 8},
        "spec.model.topK must not be set unless spec.model.type is Teacher: no other model gives",
    ),
    "no most likely tokens": (
        "spec.model",
        {"source": "hf://org/model", "type": "Teacher", "topK": 0},
        "spec.model.topK: Invalid value: 0",
    ),
    "an engine without batch invariance on a CPU": (
        "spec",
        {
            "model": {"source": "hf://org/model"},
            "engine": {"name": "sglang", "deterministic": True},
            "worker": {"gpus": 0},
        },
        "spec.engine.deterministic must be false when spec.worker.gpus is 0, unless spec.engine.name is transformers",
    ),
    "a deterministic function": (
        "spec",
        {"model": {"source": "python://rewards:score"}, "engine": {"deterministic": True}},
        "spec.engine.deterministic must be false when spec.engine.name is python",
    ),
    "comparing the texts of a teacher": (
        "spec",
        {
            "model": {"source": "hf://org/model", "type": "Teacher"},
            "rollout": {"parity": {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": 0.1}},
        },
        "spec.rollout.parity must not be set when spec.model.type is Generative or Teacher: those give texts no score",
    ),
    "a function with a checkpoint's code": (
        "spec.model",
        {"source": "python://rewards:score", "type": "Function", "trustRemoteCode": True},
        "spec.model.trustRemoteCode must be false when spec.model.type is Function",
    ),
    "two adapters of one name": (
        "spec.model.adapters",
        [{"name": "safe", "source": "file:///a"}, {"name": "safe", "source": "file:///b"}],
        "spec.model.adapters[].name must not be that of another adapter",
    ),
    "an adapter with the pool's own name": (
        "spec.model.adapters",
        [{"name": "quickstart", "source": "file:///a"}],
        "spec.model.adapters[].name must not be the pool's own name",
    ),
    "an adapter with a name that nothing may serve": (
        "spec.model.adapters",
        [{"name": "Not/Safe", "source": "file:///a"}],
        "spec.model.adapters[0].name in body should match '^[a-z0-9]",
    ),
    "an adapter of a branch": (
        "spec.model.adapters",
        [{"name": "safe", "source": "hf://org/safe", "revision": "main"}],
        "spec.model.adapters[0].revision in body should match '^[0-9a-f]{40}$'",
    ),
    "an adapter of no commit": (
        "spec.model.adapters",
        [{"name": "safe", "source": "hf://org/safe"}],
        "spec.model.adapters[].revision must be the commit of an hf:// source",
    ),
    "an adapter on S3": (
        "spec.model.adapters",
        [{"name": "safe", "source": "s3://bucket/safe"}],
        "spec.model.adapters[].source must be hf://ORG/NAME, pvc://CLAIM, pvc://CLAIM/PATH or file:///ABSOLUTE/PATH",
    ),
    "more adapters than a replica takes": (
        "spec.model.adapters",
        [{"name": f"a{n}", "source": f"file:///{n}"} for n in range(17)],
        "spec.model.adapters: Too many: 17: must have at most 16 items",
    ),
    "adapters of a judge": (
        "spec.model",
        {"source": "hf://a/b", "type": "Generative", "adapters": [{"name": "a", "source": "file:///a"}]},
        "spec.model.adapters must not be set unless spec.model.type is Discriminative",
    ),
    "adapters under a declared head": (
        "spec.model",
        {
            "source": "hf://a/b",
            "head": {"type": "Classifier", "weights": [1, 2]},
            "adapters": [{"name": "a", "source": "file:///a"}],
        },
        "spec.model.adapters must not be set unless spec.model.type is Discriminative, without spec.model.head",
    ),
    "adapters on transformers": (
        "spec",
        {
            "model": {"source": "hf://a/b", "adapters": [{"name": "a", "source": "file:///a"}]},
            "engine": {"name": "transformers"},
        },
        "spec.model.adapters must not be set unless spec.engine.name is vllm or sglang",
    ),
    "adapters of an engine that sleeps": (
        "spec",
        {
            "model": {"source": "hf://a/b", "adapters": [{"name": "a", "source": "file:///a"}]},
            "engine": {"sleep": {"enabled": True}},
        },
        "spec.model.adapters must not be set unless spec.engine.name is vllm or sglang and spec.engine.sleep.enabled",
    ),
    "more shards than GPUs": (
        "spec.engine.tensorParallelSize",
        0,
        "spec.engine.tensorParallelSize in body should be greater than or equal to 1",
    ),
    "too long a name": ("metadata.name", "x" * 41, "metadata.name must have at most 40 characters"),
    "a name that no Service may have": (
        "metadata.name",
        "70b-judge",
        "metadata.name must have only lower-case letters",
    ),
    "a Secret that cannot be": (
        "spec.router.tls",
        {"secretName": "\n\n"},
        "spec.router.tls.secretName in body should match '^[a-z0-9]",
    ),
    "a claim that cannot be": (
        "spec.model.cache",
        {"claimName": " "},
        "spec.model.cache.claimName in body should match '^[a-z0-9]",
    ),
    "a ConfigMap that cannot be": (
        "spec.rollout.parity",
        {"goldenSetRef": {"name": "Golden_Set"}, "maxAbsDiff": 0.1},
        "spec.rollout.parity.goldenSetRef.name in body should match '^[a-z0-9]",
    ),
    "an entry that cannot be": (
        "spec.model.tokenSecretRef",
        {"name": "hf", "key": "the token"},
        "spec.model.tokenSecretRef.key in body should match '^[-._a-zA-Z0-9]+$'",
    ),
}
"""Also what the tests on the real API server go through: path, value, words."""


@pytest.mark.parametrize(("path", "value", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_manifest_is_refused_with_the_field_and_the_words_of_an_api_server(path, value, words):
    with pytest.raises(ManifestError) as refused:
        load_manifest(manifest(path, value))
    assert words in str(refused.value)


def test_all_problems_are_told_at_once():
    text = manifest("spec.engine.nmae", "x", base=yaml.safe_load(manifest("spec.replicas", -1)))
    with pytest.raises(ManifestError) as refused:
        load_manifest(text)
    assert len(refused.value.problems) == 2


POD = "apiVersion: v1\nkind: Pod\n"
POOL = QUICKSTART.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: [", "it is not YAML: line 2, column 5: "),
        ("a: \x00", "character 4, U+0000, must not be in it"),
        ("a: !!int b", "line 1, column 4: this is no !!int"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: a is there twice"),
        ("a: &a [*a]", "it contains itself"),
        (f"- &a [{'1, ' * 1000}]\n- [{'*a, ' * 200}]", "with its aliases written out it has more than 100000 values"),
        ("[" * 1000, "it has too many levels"),
        ("a: !!binary a", "this is no !!binary"),
        ("a: .inf", "JSON has no value such as inf"),
        ("? [a]\n: b", "this cannot be a key"),
        ("<<: 1", "a merge (<<) takes a mapping"),
        ('a: "\\ud800"', "half a character"),
        (b"\xff", "it is not text in UTF-8 (byte 1)"),
        (b"\xff\xfea", "it is not text in UTF-16 (byte 3)"),
        (f"a: {'b' * 2_000_000}", "it has more than 1500000 bytes"),
        ("", "it is empty"),
        ("# a comment", "it is empty"),
        (f"{POD}---\n{POD}", "it holds 2 documents and none is one (Pod, Pod)"),
        (f"{POOL}---\n{POOL}", "it holds 2 of them"),
        ("- a", "it holds a list and not an object"),
        ("a", "it holds a string and not an object"),
        (POD, 'no matches for kind "Pod" in version "v1"'),
        ("kind: RewardPool", "apiVersion: Required value: it is rewardpool.dev/v1alpha1"),
        ("apiVersion: rewardpool.dev/v1alpha1", "kind: Required value: it is RewardPool"),
    ],
)
def test_a_file_that_is_no_reward_pool_is_refused_in_one_line(text, words):
    with pytest.raises(ManifestError, match=r"not a valid RewardPool: ") as refused:
        load_manifest(text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_documents_of_other_kinds_beside_the_pool_are_left_to_kubectl():
    assert load_manifest(f"{POD}---\n{POOL}---\n").key == "default/quickstart"


def test_what_is_merged_into_a_mapping_may_be_overridden_in_it():
    resources = "{a: &a {cpu: 1}, b: &b {<<: *a, cpu: 2}, <<: *b, cpu: 3}"
    text = f"{POOL.replace('gpus: 0', f'podTemplate: {{spec: {resources}}}')}"
    assert load_manifest(text).spec.worker.pod_template["spec"]["cpu"] == 3


@pytest.mark.parametrize(
    "argument",
    [
        "--model",
        "--model-path=/m",
        "--model_path",
        "--served-model-name",
        "--served_model_name=my-rm",
        "--served-name",
        "--function",
        "--host",
        "--port=1",
        "--uds",
        "--runner",
        "--is_embedding",
        "--middleware",
        "--config",
        "--ssl-keyfile=k",
    ],
)
def test_an_argument_of_rewardpools_own_is_refused_by_name(argument):
    with pytest.raises(ManifestError, match=argument.partition("=")[0].replace("_", "-")) as refused:
        load_manifest(manifest("spec.engine.args", ["--enforce-eager", argument, "x"]))
    assert "spec.engine.args must not have" in str(refused.value)


@pytest.mark.parametrize(
    "argument", ["--served", "--model-p=/m", "--hos=h", "--por", "--is-e", "--confi=c", "--ssl_certfile"]
)
def test_the_beginning_of_an_argument_of_rewardpools_own_is_refused_too(argument):
    with pytest.raises(ManifestError, match="which are RewardPool's own"):
        load_manifest(manifest("spec.engine.args", [argument]))


@pytest.mark.parametrize(
    "argument", ["--api-key=x", "--api_key", "--api-k", "--api", "--ap=x", "--admin-api-key", "--admin_api_key=x"]
)
def test_a_key_among_the_arguments_is_refused_in_every_spelling(argument):
    with pytest.raises(ManifestError, match="must not have --api-key"):
        load_manifest(manifest("spec.engine.args", [argument]))


@pytest.mark.parametrize(
    "argument",
    [
        "--model-impl=vllm",
        "--model-loader-extra-config",
        "--api-server-count=2",
        "--hf-config-path",
        "--portfolio",
        "x--port",
    ],
)
def test_an_argument_that_only_resembles_one_of_rewardpools_own_is_taken(argument):
    assert load_manifest(manifest("spec.engine.args", [argument])).spec.engine.args == [argument]


def of_teacher(*args):
    teacher = json.loads(manifest("spec", {"model": {"source": "hf://org/teacher", "type": "Teacher"}}))
    return manifest("spec.engine", {"args": args}, base=teacher)


@pytest.mark.parametrize(
    "argument",
    ["--max-num-batched-tokens", "--max_num_batched_tokens=4096", "--max-num-b", "--kv-cache-memory-bytes=1G"],
)
def test_an_argument_by_which_a_teachers_step_takes_other_memory_is_refused_by_name(argument):
    with pytest.raises(ManifestError, match=r"spec\.engine\.args must not have --max-num-batched-tokens"):
        load_manifest(of_teacher(argument, "4096"))
    assert load_manifest(manifest("spec.engine.args", [argument])).spec.engine.args == [argument]


@pytest.mark.parametrize(
    "argument", ["--max-num-seqs=8", "--kv-cache-metrics", "--gpu-memory-utilization=0.5", "--chunked-prefill-size=-1"]
)
def test_an_argument_that_leaves_a_teachers_step_as_it_is_is_taken(argument):
    assert load_manifest(of_teacher(argument)).spec.engine.args == [argument]


@pytest.mark.parametrize("name", ["VLLM_API_KEY", "VLLM_SERVER_DEV_MODE", "REWARDPOOL_SERVED_NAME"])
def test_a_variable_of_rewardpools_own_is_refused_by_name(name):
    with pytest.raises(ManifestError, match=name.removeprefix("REWARDPOOL")):
        load_manifest(manifest("spec.engine.env", [{"name": name, "value": "x"}]))


def a_template(component, container, *, field="containers"):
    return manifest(f"spec.{component}.podTemplate", {"spec": {field: [{"name": "side"}, container]}})


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        ({"name": "worker", "args": ["--served-model-name=x"]}, "args must not be set in the container worker"),
        ({"name": "worker", "command": ["vllm", "serve"]}, "command must not be set in the container worker"),
        ({"name": "worker", "command": {"$patch": "delete"}}, "command must not be set in the container worker"),
        ({"name": "worker", "envFrom": [{"secretRef": {"name": "s"}}]}, "envFrom must not be set"),
        (
            {"name": "worker", "env": [{"name": "VLLM_API_KEY", "value": "x"}]},
            r"env\[0\].name must not be VLLM_API_KEY",
        ),
        ({"name": "worker", "env": [{"name": "A"}, {"name": "REWARDPOOL_KEY_FILE", "$patch": "delete"}]}, r"env\[1\]"),
        (
            {"name": "worker", "env": [{"name": "PYTHONPATH", "value": "/x"}]},
            ".*PYTHONPATH, which spec.engine.env takes",
        ),
        ({"name": "worker", "env": {"$patch": "delete"}}, "env must be a list"),
    ],
)
def test_what_of_a_pod_template_overrides_rewardpools_own_is_refused_by_name(container, problem):
    with pytest.raises(ManifestError, match=rf"spec\.worker\.podTemplate\.spec\.containers\[1\]\.{problem}"):
        load_manifest(a_template("worker", container))


@pytest.mark.parametrize("name", ["download", "download-adapter-0"])
def test_a_pod_template_overrides_no_download(name):
    container = {"name": name, "env": [{"name": "HF_HOME", "value": "/x"}]}
    with pytest.raises(ManifestError, match=r"initContainers\[1\]\.env\[0\]\.name must not be HF_HOME"):
        load_manifest(a_template("worker", container, field="initContainers"))


@pytest.mark.parametrize("component", ["router", "gateway"])
def test_a_pod_template_overrides_no_key_of_a_router_or_gateway(component):
    container = {"name": component, "env": [{"name": "REWARDPOOL_KEY_FILE", "value": "/x"}]}
    with pytest.raises(ManifestError, match=rf"spec\.{component}\..*must not be REWARDPOOL_KEY_FILE"):
        load_manifest(a_template(component, container))


@pytest.mark.parametrize(
    ("component", "container"),
    [
        ("worker", {"name": "worker", "args": None, "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}),
        ("worker", {"name": "sidecar", "args": ["--port=1"], "env": [{"name": "VLLM_API_KEY", "value": "x"}]}),
        ("router", {"name": "router", "args": ["--log-level=info"], "env": [{"name": "RUST_LOG", "value": "info"}]}),
    ],
)
def test_what_of_a_pod_template_overrides_nothing_is_taken(component, container):
    pool = load_manifest(a_template(component, container))
    assert container in getattr(pool.spec, component).pod_template["spec"]["containers"]


def test_the_variables_by_which_a_function_finds_another_pool_are_taken():
    env = [{"name": "REWARDPOOL_URL", "value": "http://judge"}, {"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"}]
    assert load_manifest(manifest("spec.engine.env", env)).spec.engine.variables["REWARDPOOL_URL"] == "http://judge"


@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_a_fraction_without_quotes_is_refused_once_by_its_field(kind):
    field = f"spec.worker.resources.{kind}.cpu"
    with pytest.raises(ManifestError) as refused:
        load_manifest(manifest(field, 0.5))
    words = f'{field}: Invalid value: "number": {field} in body must be of type integer,string: "number"'
    assert refused.value.problems == [words]


@pytest.mark.parametrize("value", ["4 cores", "16 Gi", "16GB", "", "lots", "1Ki2"])
def test_what_is_no_quantity_is_refused_with_its_field_and_value(value):
    with pytest.raises(ManifestError) as refused:
        load_manifest(manifest("spec.worker.resources.requests.memory", value))
    (problem,) = refused.value.problems
    assert problem.startswith(f'spec.worker.resources.requests.memory: Invalid value: "{value}": ')


@pytest.mark.parametrize("value", [4, "4", "500m", "0.5", "16Gi", "16G", "1e3", "1.5Ti", ".5", "100k"])
def test_a_quantity_of_kubernetes_is_taken(value):
    pool = load_manifest(manifest("spec.worker.resources.requests.memory", value))
    assert pool.spec.worker.resources.requests["memory"] == value

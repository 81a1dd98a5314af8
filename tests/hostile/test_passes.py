"""Whatever pods, routers, jobs and people write: a pass over their pool does not fail, and its status makes sense.

Surroundings are fakes below the API server and the routers' HTTP; the pass is the operator's own.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from support.drawing import anything, as_json, from_schema, hostile, loose_texts, mostly, numbers, objects, texts
from support.hostile_pool import EMPTY_ROUTER, Answer, HostilePool, a_hostile_pod, hostile_pool
from support.kube_builders import a_pool
from support.odd_manifests import STATUS_SCHEMA
from support.odd_objects import lease_of, leases, pods_of
from support.pool_surroundings import KEY

from rewardpool_api import names
from rewardpool_kube import resources
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes import render
from rewardpool_worker.mounted import WORKER_ZIP, router_files, worker_files

FUNCTION = {"model": {"source": "python://rewards:score", "type": "Function"}, "engine": {"name": "python"}}
SPECS: tuple[Mapping[str, Any], ...] = (
    {**FUNCTION, "replicas": 1},
    {"replicas": 2, "router": {"replicas": 2}},
    {"autoscaling": {"maxReplicas": 4, "policy": {"type": "Demand", "demand": {}}}},
    {"replicas": 1, "rollout": {"parity": {"goldenSetRef": {"name": "golden"}, "maxAbsDiff": 0.1}}},
    {"replicas": 1, "router": {"tls": {"secretName": "certificate"}}},
)
SCALED: tuple[Mapping[str, Any], ...] = (
    {
        "autoscaling": {
            "minReplicas": 0,
            "maxReplicas": 4,
            "policy": {"type": "DrainTime", "drainTime": {"targetSeconds": 5}},
        }
    },
    {"autoscaling": {"minReplicas": 0, "maxReplicas": 4, "policy": {"type": "Demand", "demand": {"learn": True}}}},
)


async def look_at_pods(spec: Mapping[str, Any], workers: list[Object], routers: list[Object], warning: str) -> None:
    async with hostile_pool() as pool:
        pool.put_pool(spec)
        await pool.passes(1)
        pool.kube.warning = warning
        put_pods(pool, workers=workers, routers=routers)
        await pool.passes(3)
        pool.check()


def put_pods(pool: HostilePool, *, workers: list[Object], routers: list[Object]) -> None:
    found = pool.store.objects(KEY)
    assert found is not None
    revision = next((item["metadata"]["labels"][names.LABEL_REVISION] for item in found.worker_deployments()), "old")
    for component, pods in ((names.COMPONENT_WORKER, workers), (names.COMPONENT_ROUTER, routers)):
        for number, drawn in enumerate(pods):
            pod = a_hostile_pod(f"{component}-{number}", component, port=pool.talker.port, revision=revision)
            metadata = {**pod["metadata"], **drawn["metadata"]}
            pool.put(resources.PODS, {**pod, "metadata": metadata, "status": drawn["status"]})


@hostile(
    "pools of odd pods",
    spec=st.sampled_from(SPECS),
    workers=st.lists(pods_of(names.COMPONENT_WORKER), min_size=1, max_size=3),
    routers=st.lists(pods_of(names.COMPONENT_ROUTER), max_size=2),
    warning=texts,
)
def test_no_pod_fails_its_pools_passes(
    spec: Mapping[str, Any], workers: list[Object], routers: list[Object], warning: str
) -> None:
    asyncio.run(look_at_pods(spec, workers, routers, warning))


entries = objects(
    {},
    id=mostly(loose_texts),
    url=st.one_of(st.just("http://127.0.0.1:1"), loose_texts, anything),
    load=mostly(st.integers(0, 3), numbers),
    is_healthy=mostly(st.booleans()),
    status=mostly(st.just("ready")),
)
lists = objects({}, workers=st.one_of(st.lists(st.one_of(entries, anything), max_size=4), anything))
figures = st.lists(
    st.builds(
        lambda name, labels, value: f"{name}{labels} {value}",
        st.sampled_from(["smg_worker_cb_outcomes_total", "smg_http_connections_active", "smg_worker_requests_active"]),
        st.sampled_from(['{worker="http://127.0.0.1:1",outcome="success"}', "{", "", '{worker="\\', '{worker=""}']),
        st.one_of(numbers.map(str), texts),
    ),
    max_size=4,
).map("\n".join)
bodies = st.one_of(
    as_json(lists), as_json(anything), figures, texts, st.sampled_from(["", "[" * 100_000, "9" * 5000])
).map(lambda text: text.encode(errors="surrogatepass"))
answers = st.builds(
    Answer,
    body=st.one_of(bodies, bodies, st.binary(max_size=40)),
    status=st.sampled_from([200, 200, 200, 200, 202, 204, 301, 401, 404, 409, 422, 500, 503]),
    content_type=st.sampled_from(["application/json", "text/plain; charset=nonsense", "text/html", "x"]),
    hangs_up=st.sampled_from([False, False, False, True]),
)
answers_by_path = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("workers", "metrics", "load", "download", "models", "embeddings", "ready"), answers)
)


def a_running_pod(component: str, **annotations: str) -> Object:
    status = {"name": component, "started": True, "ready": True, "restartCount": 0, "state": {"running": {}}}
    return {
        "metadata": {"annotations": annotations},
        "status": {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [status],
        },
    }


async def look_at_answers(said: Mapping[str, Answer], flavor: str) -> None:
    draining = {names.ANNOTATION_DRAINING_SINCE: "2026-01-01T00:00:00Z"}
    async with hostile_pool() as pool:
        pool.put_pool(
            {
                "autoscaling": {
                    "maxReplicas": 4,
                    "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 4}},
                },
                "router": {"flavor": flavor},
            }
        )
        await pool.passes(1)
        pool.talker.answers = said
        workers = [a_running_pod(names.COMPONENT_WORKER), a_running_pod(names.COMPONENT_WORKER, **draining)]
        routers = [a_running_pod(names.COMPONENT_ROUTER, **{names.ANNOTATION_FLAVOR: flavor})]
        put_pods(pool, workers=workers, routers=routers)
        await pool.passes(3)
        pool.check()


@hostile("answers of routers and workers", said=answers_by_path, flavor=st.sampled_from(["sglang-router", "smg"]))
def test_no_answer_of_a_router_or_worker_fails_a_pass(said: Mapping[str, Answer], flavor: str) -> None:
    asyncio.run(look_at_answers(said, flavor))


async def look_at_leases(drawn: list[Object]) -> None:
    async with hostile_pool() as pool:
        pool.put_pool({"autoscaling": {"maxReplicas": 4, "policy": {"type": "Demand", "demand": {}}}})
        await pool.passes(1)
        put_pods(pool, workers=[a_running_pod(names.COMPONENT_WORKER)], routers=[a_running_pod(names.COMPONENT_ROUTER)])
        for lease in drawn:
            pool.put(resources.LEASES, lease_of(lease))
        await pool.passes(3)
        pool.check()


@hostile("pools with odd Leases", drawn=leases)
def test_no_lease_fails_its_pools_passes(drawn: list[Object]) -> None:
    asyncio.run(look_at_leases(drawn))


lines = st.one_of(as_json(objects({}, text=mostly(loose_texts), score=mostly(numbers))), as_json(anything), texts)
golden_sets = st.lists(lines, max_size=4).map("\n".join)
scores = as_json(
    objects({}, set=mostly(texts), scores=mostly(st.lists(numbers, max_size=3)), refusal=mostly(loose_texts))
)
secret_data = st.dictionaries(
    st.sampled_from([names.SECRET_KEY, names.NEXT_KEY, names.PREVIOUS_KEY, "data-plane-key", "tls.crt", "tls.key"]),
    st.one_of(st.binary(max_size=50), texts.map(str.encode)).map(lambda content: base64.b64encode(content).decode()),
)
files = objects(
    {},
    golden=objects({}, data=st.dictionaries(st.sampled_from(["golden.jsonl", "other"]), golden_sets)),
    files=objects(
        {},
        data=st.dictionaries(st.sampled_from([names.PINS_FILE, WORKER_ZIP]), st.one_of(texts, as_json(anything))),
    ),
    scores=st.one_of(scores, texts),
    pool=st.dictionaries(
        st.sampled_from([names.ANNOTATION_RESTARTED_AT, names.ANNOTATION_ROTATE_KEY, "rewardpool.dev/other"]), texts
    ),
    spec=st.one_of(texts, as_json(anything)),
    secrets=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("rm-key", "rm-router-admin", "certificate"), secret_data)
    ),
)


def odd_files() -> list[Object]:
    """Mounted files that may be edited, which nobody mounts."""
    return [{**render.files_config_map("rl", files()), "immutable": False} for files in (worker_files, router_files)]


async def look_at_files(spec: Mapping[str, Any], drawn: Object) -> None:
    async with hostile_pool() as pool:
        for name, data in drawn.get("secrets", {}).items():
            pool.kube.keep(resources.SECRETS, {"metadata": {"name": name}, "data": data})
        if "golden" in drawn:
            pool.kube.keep(resources.CONFIG_MAPS, {"metadata": {"name": "golden"}, **drawn["golden"]})
        pool.put_pool(spec, metadata={"annotations": drawn.get("pool", {})})
        await pool.passes(2)
        put_pods(pool, workers=[a_running_pod(names.COMPONENT_WORKER)], routers=[a_running_pod(names.COMPONENT_ROUTER)])
        found = pool.store.objects(KEY)
        assert found is not None
        said = {
            names.ANNOTATION_GOLDEN_SCORES: drawn.get("scores"),
            names.ANNOTATION_SPEC: drawn.get("spec"),
        }
        for deployment in found.worker_deployments():
            annotations = {name: text for name, text in said.items() if text is not None}
            metadata = {**deployment["metadata"], "annotations": annotations}
            pool.put(resources.DEPLOYMENTS, {**deployment, "metadata": metadata})
        for config_map in (render.pins_config_map(a_pool()), *odd_files()):
            pool.put(resources.CONFIG_MAPS, {**config_map, **drawn.get("files", {})})
        await pool.passes(3)
        pool.check()


@hostile("pools with odd ConfigMaps, Secrets and annotations", spec=st.sampled_from(SPECS), drawn=files)
def test_no_config_map_secret_or_annotation_fails_its_pools_passes(spec: Mapping[str, Any], drawn: Object) -> None:
    asyncio.run(look_at_files(spec, drawn))


async def look_at_status(spec: Mapping[str, Any], status: Object) -> None:
    async with hostile_pool() as pool:
        pool.put_pool(spec, status=status)
        await pool.passes(2)
        pool.talker.answers = EMPTY_ROUTER
        put_pods(pool, workers=[a_running_pod(names.COMPONENT_WORKER)], routers=[a_running_pod(names.COMPONENT_ROUTER)])
        await pool.passes(3)
        if "tls" not in spec.get("router", {}):
            pool.check()


@hostile("stored statuses", spec=st.sampled_from(SPECS + SCALED), status=from_schema(STATUS_SCHEMA))
def test_no_status_that_the_schema_lets_through_fails_its_pools_passes(spec: Mapping[str, Any], status: Object) -> None:
    asyncio.run(look_at_status(spec, status))

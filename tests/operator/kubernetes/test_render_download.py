"""The download in front of an engine, by behaviour: one fact about the rendered pod per test."""

import json
from typing import Any

import pytest
from support.env_vars import env_vars
from support.kube_builders import FUNCTION, a_pool

from rewardpool_api import names
from rewardpool_operator.kubernetes import render
from rewardpool_operator.kubernetes.render.download import ADAPTERS_DIR, HUB_DIR, LINK_DIR, with_resources
from rewardpool_worker.mounted import worker_files

HUB = {"model": {"source": "hf://org/model"}}
S3 = {"model": {"source": "s3://bucket/team/rm"}}
ELSEWHERE = [
    {"model": {"source": "file:///models/rm"}},
    {"model": {"source": "pvc://claim/rm"}},
    FUNCTION,
]


def pod(**spec: Any) -> dict[str, Any]:
    template: dict[str, Any] = render.worker_template(a_pool(**spec), image="own:1")
    return template["spec"]


def download(**spec: Any) -> dict[str, Any]:
    (container,) = pod(**spec)["initContainers"]
    return container


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def flag(container: dict[str, Any], name: str) -> str:
    return container["command"][container["command"].index(name) + 1]


@pytest.mark.parametrize("spec", [HUB, S3], ids=["hub", "s3"])
def test_the_engine_reads_what_the_download_links(spec: dict[str, Any]) -> None:
    (worker,) = pod(**spec)["containers"]
    assert flag(worker, "--model") == flag(download(**spec), "--link")
    assert "--revision" not in worker["command"]
    assert env(worker)["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("spec", ELSEWHERE, ids=["file", "pvc", "function"])
def test_what_is_there_already_is_not_downloaded(spec: dict[str, Any]) -> None:
    assert "initContainers" not in pod(**spec)


def test_both_see_the_same_cache_and_the_same_link() -> None:
    (worker,) = pod(**HUB)["containers"]
    places = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
    also = {mount["name"]: mount["mountPath"] for mount in download(**HUB)["volumeMounts"]}
    assert {name: places[name] for name in ("hub-cache", "model", "files")}.items() <= also.items()


def read_only(container: dict[str, Any]) -> dict[str, bool]:
    return {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


@pytest.mark.parametrize("cache", [{}, {"cache": {"claimName": "shared"}}], ids=["of the pod", "shared"])
@pytest.mark.parametrize("model", [HUB["model"], S3["model"]], ids=["hub", "s3"])
def test_the_download_alone_may_write_what_the_engine_reads(model: dict[str, Any], cache: dict[str, Any]) -> None:
    adapter = {"name": "safe", "source": "hf://org/safe", "revision": "a" * 40}
    spec = pod(model={**model, **cache, "adapters": [adapter]})
    (worker,) = spec["containers"]
    places = {HUB_DIR, LINK_DIR, f"{ADAPTERS_DIR}/safe"}
    assert {place: read_only(worker)[place] for place in places} == dict.fromkeys(places, True)
    for load in spec["initContainers"]:
        assert {place: read_only(load)[place] for place in places} == dict.fromkeys(places, False)


def test_what_libraries_of_the_engine_write_of_their_own_does_not_go_to_the_cache() -> None:
    (worker,) = pod(**HUB)["containers"]
    assert "HF_HOME" not in env(worker)
    assert env(worker)["HF_HUB_CACHE"] == flag(download(**HUB), "--cache")


def test_the_claim_of_a_cache_takes_the_downloads() -> None:
    shared = pod(model={**HUB["model"], "cache": {"claimName": "shared"}})
    assert {"name": "hub-cache", "persistentVolumeClaim": {"claimName": "shared"}} in shared["volumes"]
    assert flag(shared["initContainers"][0], "--cache").startswith(HUB_DIR)


def test_without_a_claim_the_cache_outlives_restarts_of_the_container() -> None:
    assert {"name": "hub-cache", "emptyDir": {}} in pod(**HUB)["volumes"]


def test_the_token_is_known_to_the_download_alone() -> None:
    spec = {"model": {**HUB["model"], "tokenSecretRef": {"name": "hf"}}}
    assert env(download(**spec))["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert "HF_TOKEN" not in env(pod(**spec)["containers"][0])


def test_credentials_are_known_to_the_download_alone() -> None:
    spec = {"model": {**S3["model"], "credentialsSecretRef": {"name": "s3"}}}
    assert download(**spec)["envFrom"] == [{"secretRef": {"name": "s3"}}]
    assert "envFrom" not in pod(**spec)["containers"][0]


def test_a_mirror_or_proxy_of_the_engine_is_the_downloads_too() -> None:
    spec = {**HUB, "engine": {"env": env_vars({"HF_ENDPOINT": "http://mirror", "HTTPS_PROXY": "http://proxy"})}}
    assert {"HF_ENDPOINT": "http://mirror", "HTTPS_PROXY": "http://proxy"}.items() <= env(download(**spec)).items()


@pytest.mark.parametrize(
    ("spec", "image"),
    [
        (HUB, "vllm/vllm-openai:v0.32.0"),
        ({**HUB, "engine": {"image": "mine:2"}}, "mine:2"),
        (S3, "vllm/vllm-openai:v0.32.0"),
        ({**S3, "engine": {"name": "sglang"}}, "own:1"),
        ({**S3, "engine": {"name": "transformers"}}, "vllm/vllm-openai:v0.32.0"),
    ],
    ids=["hub", "the user's image", "s3", "s3 on sglang", "s3 on transformers"],
)
def test_the_download_runs_on_the_engines_image_where_that_has_a_client(spec: dict[str, Any], image: str) -> None:
    assert download(**spec)["image"] == image


def test_the_download_gains_no_privilege() -> None:
    assert download(**HUB)["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_the_command_runs_what_is_mounted() -> None:
    (mount,) = (entry for entry in download(**HUB)["volumeMounts"] if entry["name"] == "files")
    (name,) = worker_files()
    assert download(**HUB)["command"][:3] == ["python3", f"{mount['mountPath']}/{name}", "download.program"]


def test_a_download_knows_its_revision_by_the_pods_label() -> None:
    assert env(download(**HUB))[names.ENV_REVISION] == {
        "fieldRef": {"fieldPath": f"metadata.labels['{names.LABEL_REVISION}']"}
    }


def test_pins_are_a_file_of_their_own_and_change_no_revision() -> None:
    pins = render.pins_config_map(a_pool(), {"r1": "abc"})
    assert pins["data"] == {names.PINS_FILE: '{"r1": "abc"}'}
    (mount,) = (entry for entry in download(**HUB)["volumeMounts"] if entry["mountPath"] == names.PINS_DIR)
    (volume,) = (entry for entry in pod(**HUB)["volumes"] if entry["name"] == mount["name"])
    assert volume["configMap"]["name"] == pins["metadata"]["name"]
    assert flag(download(**HUB), "--pins") == f"{names.PINS_DIR}/{names.PINS_FILE}"


def test_a_pod_template_changes_the_download_by_its_name() -> None:
    override = {"name": "download", "resources": {"limits": {"memory": "2Gi"}}, "image": "mine"}
    container = download(**HUB, worker={"podTemplate": {"spec": {"initContainers": [override]}}})
    assert (container["resources"], container["image"]) == ({"limits": {"memory": "2Gi"}}, "mine")
    assert names.ENV_REVISION in env(container)


ADAPTERS = [
    {"name": "safe", "source": "hf://org/safe", "revision": "a" * 40},
    {"name": "brief", "source": "pvc://claim/team/brief"},
    {"name": "local", "source": "file:///models/local"},
]
WITH_ADAPTERS = {"model": {"source": "file:///models/rm", "adapters": ADAPTERS}}


def adapters_of(container: dict[str, Any]) -> dict[str, Any]:
    """What the worker is told of each adapter, by name."""
    return {each["name"]: each["path"] for each in json.loads(env(container)["REWARDPOOL_ADAPTERS"])}


def test_an_adapter_of_the_hub_is_downloaded_at_its_commit_to_where_the_engine_looks() -> None:
    spec = pod(**WITH_ADAPTERS)
    (worker,), (load,) = spec["containers"], spec["initContainers"]
    assert (load["name"], flag(load, "--source"), flag(load, "--revision")) == (
        "download-adapter-0",
        "hf://org/safe",
        "a" * 40,
    )
    assert flag(load, "--link") == adapters_of(worker)["safe"]
    folder = flag(load, "--link").rpartition("/")[0]
    for container in (worker, load):
        assert {folder, HUB_DIR} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    assert "--pins" not in load["command"]


@pytest.mark.parametrize(
    ("name", "volume", "below"),
    [
        ("brief", {"persistentVolumeClaim": {"claimName": "claim", "readOnly": True}}, "/team/brief"),
        ("local", {"hostPath": {"path": "/models/local", "type": "Directory"}}, ""),
    ],
)
def test_an_adapter_that_is_there_is_mounted(name: str, volume: dict[str, Any], below: str) -> None:
    spec = pod(**WITH_ADAPTERS)
    (worker,) = spec["containers"]
    (mounted,) = (each["name"] for each in spec["volumes"] if volume.items() <= each.items())
    (mount,) = (each for each in worker["volumeMounts"] if each["name"] == mounted)
    assert adapters_of(worker)[name] == mount["mountPath"] + below
    assert mount["readOnly"]


def test_each_download_is_a_container_of_its_own_the_models_first() -> None:
    spec = pod(model={**HUB["model"], "adapters": [ADAPTERS[0], {**ADAPTERS[0], "name": "able"}]})
    assert [each["name"] for each in spec["initContainers"]] == ["download", "download-adapter-0", "download-adapter-1"]
    assert len({flag(each, "--link") for each in spec["initContainers"]}) == 3


def test_the_order_of_adapters_makes_no_other_revision() -> None:
    again = {"model": {**WITH_ADAPTERS["model"], "adapters": ADAPTERS[::-1]}}
    assert pod(**again) == pod(**WITH_ADAPTERS)


def test_another_commit_of_an_adapter_is_another_revision() -> None:
    moved = {"model": {**WITH_ADAPTERS["model"], "adapters": [{**ADAPTERS[0], "revision": "b" * 40}, *ADAPTERS[1:]]}}
    first, second = (render.worker_revision(a_pool(**spec), image="own:1").name for spec in (WITH_ADAPTERS, moved))
    assert first != second


LIMITED = {"requests": {"cpu": 4, "memory": "16Gi"}, "limits": {"cpu": 4, "memory": "16Gi"}}
AMOUNTS = {kind: {"cpu": "4", "memory": "16Gi"} for kind in ("requests", "limits")}


def test_every_download_may_take_what_its_worker_may_but_no_gpu() -> None:
    model = {**HUB["model"], "adapters": ADAPTERS[:1]}
    given = [one["resources"] for one in pod(model=model, worker={"resources": LIMITED})["initContainers"]]
    assert given == [AMOUNTS, AMOUNTS]


def test_a_download_may_take_what_a_pod_template_gives_its_worker() -> None:
    override = {"name": "worker", "resources": {"limits": {"cpu": "2", "ephemeral-storage": "9Gi"}}}
    container = download(**HUB, worker={"podTemplate": {"spec": {"containers": [override]}}})
    assert container["resources"] == {"limits": {"cpu": "2", "ephemeral-storage": "9Gi"}}


def test_what_a_pod_template_gives_the_download_wins_resource_by_resource() -> None:
    override = {"name": "download", "resources": {"limits": {"memory": "2Gi"}}}
    worker = {"resources": LIMITED, "podTemplate": {"spec": {"initContainers": [override]}}}
    assert download(**HUB, worker=worker)["resources"] == {
        "requests": {"cpu": "4"},
        "limits": {"cpu": "4", "memory": "2Gi"},
    }


DISK = {"name": "disk", "mountPath": "/mnt/models"}
CLAIM = {"name": "disk", "persistentVolumeClaim": {"claimName": "models"}}


def on_disk(variable: str, folder: str, **model: Any) -> dict[str, Any]:
    """A pool whose hub's folder a variable names, with a claim at /mnt/models."""
    template = {"spec": {"volumes": [CLAIM], "containers": [{"name": "worker", "volumeMounts": [DISK]}]}}
    return {
        "model": {**HUB["model"], **model},
        "engine": {"env": env_vars({variable: folder})},
        "worker": {"podTemplate": template},
    }


def mounted(container: dict[str, Any]) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


@pytest.mark.parametrize(
    ("variable", "folder", "cache"),
    [
        ("HF_HOME", "/mnt/models/hf", "/mnt/models/hf/hub"),
        ("HF_HOME", "/mnt/models/", "/mnt/models/hub"),
        ("HF_HUB_CACHE", "/mnt/models/cache", "/mnt/models/cache"),
    ],
)
def test_a_hub_folder_on_a_claim_of_the_users_takes_the_download(variable: str, folder: str, cache: str) -> None:
    spec = pod(**on_disk(variable, folder))
    (load,), (worker,) = spec["initContainers"], spec["containers"]
    assert flag(load, "--cache") == cache
    assert mounted(load)["/mnt/models"] == mounted(worker)["/mnt/models"] == "disk"
    assert "hub-cache" not in {*mounted(load).values(), *mounted(worker).values()}


def test_a_claim_of_the_users_that_the_engine_may_only_read_takes_the_download() -> None:
    pool = on_disk("HF_HOME", "/mnt/models")
    pool["worker"]["podTemplate"]["spec"]["containers"][0]["volumeMounts"] = [{**DISK, "readOnly": True}]
    spec = pod(**pool)
    (load,), (worker,) = spec["initContainers"], spec["containers"]
    assert (read_only(worker)["/mnt/models"], read_only(load)["/mnt/models"]) == (True, False)


def test_a_hub_folder_that_no_volume_of_the_users_has_is_where_the_cache_is_mounted() -> None:
    spec = pod(**on_disk("HF_HOME", "/mnt/modelsother"))
    for container in (*spec["initContainers"], *spec["containers"]):
        assert mounted(container)["/mnt/modelsother"] == "hub-cache"
        assert env(container)["HF_HOME"] == "/mnt/modelsother"


def test_the_claim_of_a_cache_is_mounted_at_the_users_hub_folder() -> None:
    spec = pod(**on_disk("HF_HOME", "/mnt/models/hf", cache={"claimName": "shared"}))
    assert mounted(spec["initContainers"][0])["/mnt/models/hf"] == "hub-cache"


def test_what_the_user_mounts_into_the_worker_is_there_for_its_download() -> None:
    mount = {"name": "ca", "mountPath": "/etc/ca"}
    template = {"spec": {"containers": [{"name": "worker", "volumeMounts": [mount]}, {"name": "side"}, "nonsense"]}}
    assert mount in download(**HUB, worker={"podTemplate": template})["volumeMounts"]


@pytest.mark.parametrize("template", [{"spec": 1}, {"spec": {"containers": 1}}, {"spec": {"initContainers": "x"}}])
def test_a_pod_template_that_is_nonsense_gets_to_the_api_server(template: dict[str, Any]) -> None:
    rendered = render.worker_template(a_pool(**HUB, worker={"podTemplate": template}), image="own:1")
    assert "spec" in rendered


ONE_CPU = {"name": "worker", "resources": {"limits": {"cpu": "1"}}}


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "worker", "resources": "x"}], "initContainers": []},
        {"containers": [ONE_CPU], "initContainers": 7},
        {"containers": [ONE_CPU], "initContainers": [{"name": "download", "resources": "x"}]},
        {"containers": [ONE_CPU], "initContainers": [{"name": "download", "resources": {"limits": "z"}}]},
    ],
)
def test_resources_that_are_none_are_left_to_the_api_server(spec: dict[str, Any]) -> None:
    assert with_resources({"spec": spec}) == {"spec": spec}

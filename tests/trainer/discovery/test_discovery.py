import base64
import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.certificates import Authority
from rewardpool import Endpoint, RewardConfig
from rewardpool._deadline import waited
from rewardpool._discovery.find import AWAY_SECONDS, find_pool, why_not_ready
from rewardpool._discovery.pool_sources import LocalSource, PoolNotHere, SourceUnavailableError
from rewardpool.errors import (
    ConfigError,
    PoolAccessError,
    PoolNotFoundError,
    PoolNotReadyError,
    PoolNotYetReadyError,
)
from rewardpool_api import RewardPool

CONFIG = RewardConfig(pool="rl/skywork")
POLICY = {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 32}}
AUTOSCALED = {"autoscaling": {"minReplicas": 0, "maxReplicas": 4, "policy": POLICY}}


def pool_object(
    *,
    serving: str | None = "True",
    metadata: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A RewardPool as JSON, serving with two replicas but for what is given."""
    condition = {
        "type": "Serving",
        "status": serving,
        "reason": "NoWorker",
        "message": "0 of 2 workers answer",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {
        "apiVersion": "rewardpool.dev/v1alpha1",
        "kind": "RewardPool",
        "metadata": {"name": "skywork", "namespace": "rl", "resourceVersion": "7", **(metadata or {})},
        "spec": {"model": {"source": "hf://org/model"}, "engine": {"dtype": "bfloat16"}, **(spec or {})},
        "status": {
            "replicas": 2,
            "url": "http://router:8080",
            "model": {"type": "Discriminative", "servedName": "skywork", "maxModelLen": 1024},
            "conditions": [condition] if serving else [],
            **(status or {}),
        },
    }


class FakeSource:
    """A source that answers from a script; the last answer stays."""

    def __init__(self, *answers: dict[str, Any] | Exception, has: Sequence[str] | Exception = ()) -> None:
        self._answers = list(answers)
        self._has = has
        self.asked = 0

    def __str__(self) -> str:
        return "the fake source"

    async def read_pool(self, namespace: str, name: str) -> RewardPool:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return RewardPool.model_validate(answer)

    async def pool_names(self, namespace: str) -> list[str]:
        if isinstance(self._has, Exception):
            raise self._has
        return list(self._has)

    async def read_keys(self, pool: RewardPool) -> tuple[str, ...]:
        return "the-key", "the-key-before"


class FakeTime:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def find(
    *sources: FakeSource,
    config: RewardConfig = CONFIG,
    environ: dict[str, str] | None = None,
    time: FakeTime | None = None,
    require_ready: bool = True,
) -> Endpoint:
    time = time or FakeTime()
    return await find_pool(
        config, environ=environ or {}, sources=sources, require_ready=require_ready, clock=time.clock, sleep=time.sleep
    )


@pytest.mark.parametrize(
    "raw",
    [
        pool_object(),
        pool_object(serving="False", status={"replicas": 0}, spec=AUTOSCALED),  # samples start it, and wait
    ],
)
def test_a_pool_that_can_score_is_ready(raw: dict[str, Any]) -> None:
    assert why_not_ready(RewardPool.model_validate(raw)) is None


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (pool_object(serving="False"), "Serving is False, NoWorker: 0 of 2 workers answer"),
        (pool_object(serving=None), "it has no status yet"),
        (pool_object(serving="False", status={"url": None}), "it has no URL yet .*0 of 2.* is the operator running"),
        (pool_object(status={"model": None}), "it has no URL yet"),
        (pool_object(spec={"suspend": True}), "set spec.suspend to false"),
        (pool_object(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "being deleted"),
        (pool_object(serving="False", status={"replicas": 0}, spec={"replicas": 0}), "at zero .*set spec.replicas"),
        (pool_object(serving="False", status={"replicas": 0}), "Serving is False, NoWorker"),
        (pool_object(serving="False", status={"replicas": 1}, spec=AUTOSCALED), "Serving is False, NoWorker"),
    ],
)
def test_what_keeps_a_pool_from_scoring_is_said(raw: dict[str, Any], why: str) -> None:
    assert re.search(why, why_not_ready(RewardPool.model_validate(raw)) or "ready")


async def test_the_objects_status_is_the_endpoint() -> None:
    assert await find(FakeSource(pool_object())) == Endpoint(
        url="http://router:8080",
        key="the-key",
        other_keys=("the-key-before",),
        pool="rl/skywork",
        served_name="skywork",
        model_type="Discriminative",
        max_model_len=1024,
        dtype="bfloat16",
        origin="the fake source",
        pool_object_version="7",
    )


def with_adapters(*served: str) -> dict[str, Any]:
    """A pool with two adapters, of which every worker has those that are served."""
    adapters = [{"name": name, "source": f"file:///{name}"} for name in ("helpful", "safe")]
    model = {"type": "Discriminative", "servedName": "skywork", "adapters": list(served)}
    source = {"source": "hf://org/model", "adapters": adapters}
    return pool_object(spec={"model": source, "engine": {"name": "vllm"}}, status={"model": model})


def by(adapter: str) -> RewardConfig:
    return RewardConfig(pool="rl/skywork", adapter=adapter)


async def test_an_adapter_is_a_name_under_which_the_pool_scores() -> None:
    found = await find(FakeSource(with_adapters("helpful", "safe")), config=by("safe"))
    assert found.model_fields == {"model": "skywork", "user": "adapter:safe"}
    assert (await find(FakeSource(with_adapters("helpful", "safe")))).model_fields == {"model": "skywork"}


async def test_an_adapter_that_the_pool_lacks_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        ConfigError, match=r"adapter.*saef is not an adapter of .*which has helpful, safe; did you mean safe"
    ):
        await find(FakeSource(with_adapters("helpful", "safe")), config=by("saef"))
    with pytest.raises(ConfigError, match=r"which has no spec\.model\.adapters"):
        await find(FakeSource(pool_object()), config=by("safe"))


async def test_an_adapter_is_waited_for_until_every_worker_has_it() -> None:
    source = FakeSource(with_adapters("helpful"), with_adapters("helpful", "safe"))
    assert (await find(source, config=by("safe"))).adapter == "safe"
    assert source.asked == 2


async def test_an_adapter_of_a_bare_url_is_asked_for_as_it_is() -> None:
    config = RewardConfig(url="http://there:1", served_name="rm", adapter="safe")
    assert (await find(FakeSource(), config=config)).model_fields == {"model": "rm", "user": "adapter:safe"}


async def test_a_key_is_never_shown() -> None:
    assert "the-key" not in repr(await find(FakeSource(pool_object())))


async def test_every_key_of_a_rotation_is_found() -> None:
    assert (await find(FakeSource(pool_object()))).keys == ("the-key", "the-key-before")


@pytest.mark.parametrize("beside", ["next-key", "previous-key"])
async def test_where_the_whole_secret_is_mounted_every_key_of_a_rotation_is_found(tmp_path: Path, beside: str) -> None:
    (tmp_path / "key").write_text("mounted\n")
    (tmp_path / beside).write_text("another\n")
    found = await find(FakeSource(pool_object()), config=CONFIG.model_copy(update={"key_file": tmp_path / "key"}))
    assert found.keys == ("mounted", "another")


async def test_an_explicit_url_comes_before_everything(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("from-file\n")
    source = FakeSource(pool_object())
    config = RewardConfig(pool="rl/skywork", url="http://there:1/", key_file=key_file)
    found = await find(source, config=config, environ={"REWARDPOOL_URL": "http://elsewhere:1"})
    assert (found.url, found.key, found.served_name, source.asked) == ("http://there:1", "from-file", "skywork", 0)


async def test_the_environment_comes_before_the_object(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("from-file")
    source = FakeSource(pool_object())
    found = await find(source, environ={"REWARDPOOL_URL": "http://there:1", "REWARDPOOL_KEY_FILE": str(key_file)})
    assert (found.url, found.key, source.asked) == ("http://there:1", "from-file", 0)


async def test_the_environment_can_name_the_pool() -> None:
    found = await find(FakeSource(pool_object()), config=RewardConfig(), environ={"REWARDPOOL_POOL": "rl/skywork"})
    assert found.pool == "rl/skywork"


async def test_a_mounted_key_makes_the_right_to_read_secrets_needless(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("mounted")
    found = await find(FakeSource(pool_object()), config=CONFIG.model_copy(update={"key_file": key_file}))
    assert found.key == "mounted"


@pytest.mark.parametrize(
    ("environ", "field"),
    [
        ({}, "pool"),
        ({"REWARDPOOL_POOL": "skywork"}, r"\$REWARDPOOL_POOL"),
        ({"REWARDPOOL_URL": "router"}, r"\$REWARDPOOL_URL"),
    ],
)
async def test_a_config_that_names_no_pool_is_told_what_to_set(environ: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: "):
        await find(config=RewardConfig(), environ=environ)


async def test_the_next_place_is_asked_when_one_has_no_such_pool() -> None:
    assert (await find(FakeSource(PoolNotHere("the cluster: no")), FakeSource(pool_object()))).pool == "rl/skywork"


async def not_found(*sources: FakeSource) -> str:
    with pytest.raises(PoolNotFoundError) as caught:
        await find(*sources)
    return str(caught.value)


async def test_a_pool_that_is_in_no_source_is_refused_with_those_that_are_there() -> None:
    said = await not_found(
        FakeSource(PoolNotHere("the cluster: no such pool"), has=["rl/judge"]),
        FakeSource(PoolNotHere("this machine: no file"), has=["rl/skywork-v2"]),
    )
    assert said.startswith(
        "no RewardPool rl/skywork; did you mean rl/skywork-v2? Looked at: the cluster: no such pool;"
        " this machine: no file. Pools of the fake source: rl/judge. Pools of the fake source: rl/skywork-v2. Start one"
    )


async def test_a_source_without_pools_says_so() -> None:
    assert "Pools of the fake source: none." in await not_found(FakeSource(PoolNotHere("no")))


async def test_a_source_whose_pools_may_not_be_listed_says_how_to_list_them() -> None:
    said = await not_found(FakeSource(PoolNotHere("no"), has=PoolAccessError("no right to list them")))
    assert "cannot be listed (no right to list them); try `kubectl get rewardpools -n rl`." in said


async def test_a_message_names_twenty_pools_at_most() -> None:
    said = await not_found(FakeSource(PoolNotHere("no"), has=[f"rl/pool-{number}" for number in range(25)]))
    assert "rl/pool-19 and 5 more." in said


async def test_a_place_that_cannot_be_asked_does_not_hide_a_pool(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = await find(FakeSource(PoolAccessError("credentials expired")), FakeSource(pool_object()))
    assert found.pool == "rl/skywork"
    assert "credentials expired" in caplog.text


async def test_a_place_that_cannot_be_asked_is_the_error_when_no_other_has_the_pool() -> None:
    with pytest.raises(PoolAccessError, match="credentials expired"):
        await find(FakeSource(PoolAccessError("credentials expired")), FakeSource(PoolNotHere("no")))


def not_ready(reason: str, **parts: Any) -> dict[str, Any]:
    """A pool whose condition Serving is False for that reason."""
    raw = pool_object(serving="False", **parts)
    raw["status"]["conditions"][0]["reason"] = reason
    return raw


@pytest.mark.parametrize("reason", ["EngineExited", "Starting", "RouterNotReady", "NodeLost", "Hung", "AtZero"])
async def test_samples_wait_for_a_pool_whose_trouble_passes_and_opening_it_does_not(reason: str) -> None:
    time = FakeTime()
    found = await find(FakeSource(not_ready(reason)), time=time)
    assert (found.url, time.now) == ("http://router:8080", 0.0)
    assert reason in found.not_ready


@pytest.mark.parametrize(
    "raw",
    [
        not_ready("Starting", spec={"suspend": True}),
        not_ready("Starting", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        not_ready("AtZero", status={"replicas": 0}, spec={"replicas": 0}),
        *[
            not_ready(reason)
            for reason in ("ModelNotFound", "FunctionNotLoadable", "ModelRefused", "BadArguments", "GaveUp", "Stopped")
        ],
        not_ready("ModelNotFound", status={"url": None}),
    ],
)
async def test_a_pool_whose_trouble_lasts_is_an_error_at_once(raw: dict[str, Any]) -> None:
    source, time = FakeSource(raw), FakeTime()
    with pytest.raises(PoolNotReadyError, match=r"rl/skywork \(the fake source\) is not ready: ") as caught:
        await find(source, time=time)
    assert not isinstance(caught.value, PoolNotYetReadyError)
    assert (source.asked, time.now) == (1, 0.0)


@pytest.mark.parametrize("wait_seconds", [0.0, 30.0])
async def test_a_pool_of_which_the_operator_does_not_know_whether_it_serves_is_used_at_once(
    wait_seconds: float,
) -> None:
    raw, time = pool_object(serving="Unknown"), FakeTime()
    raw["status"]["conditions"][0]["reason"] = "SecretsUnreadable"
    config = RewardConfig(pool="rl/skywork", wait_seconds=wait_seconds)
    found = await find(FakeSource(raw), config=config, time=time)
    assert (found.url, found.not_ready, time.now) == ("http://router:8080", "", 0.0)


async def test_a_pool_without_an_address_is_waited_for_whatever_the_operator_knows() -> None:
    time = FakeTime()
    unknown = pool_object(serving="Unknown", status={"url": None})
    await find(FakeSource(unknown, pool_object()), time=time)
    assert time.now == 1.0


async def test_a_pool_without_an_address_is_waited_for() -> None:
    time = FakeTime()
    await find(*[FakeSource(not_ready("Starting", status={"url": None}), pool_object())], time=time)
    assert time.now == 1.0


@pytest.mark.parametrize("used", [0.0, 30.0])
async def test_that_wait_is_within_the_deadline_of_the_samples_that_wait_for_it(used: float) -> None:
    time = FakeTime()
    with waited(used), pytest.raises(PoolNotYetReadyError, match="no URL yet"):
        await find(FakeSource(not_ready("Starting", status={"url": None})), time=time)
    assert time.now == CONFIG.timeout - used


async def test_an_api_server_that_restarts_is_waited_for() -> None:
    time = FakeTime()
    away = SourceUnavailableError("the API server does not answer")
    await find(FakeSource(away, away, pool_object()), time=time)
    assert time.now == 2.0


async def test_an_api_server_that_stays_away_is_an_error_soon() -> None:
    time = FakeTime()
    with pytest.raises(SourceUnavailableError):
        await find(FakeSource(SourceUnavailableError("it does not answer")), time=time)
    assert time.now == AWAY_SECONDS


async def test_a_pool_that_becomes_ready_is_waited_for_where_asked() -> None:
    source = FakeSource(pool_object(serving="False"), pool_object(serving="False"), pool_object())
    time = FakeTime()
    found = await find(source, config=CONFIG.model_copy(update={"wait_seconds": 60.0}), time=time)
    assert (found.url, time.now) == ("http://router:8080", 2.0)


async def test_the_wait_for_a_pool_has_a_deadline() -> None:
    time = FakeTime()
    with pytest.raises(PoolNotReadyError):
        await find(
            FakeSource(pool_object(serving="False")), config=CONFIG.model_copy(update={"wait_seconds": 2.5}), time=time
        )
    assert time.now == 2.5


async def test_a_client_that_has_started_takes_the_address_of_a_pool_in_trouble() -> None:
    found = await find(FakeSource(pool_object(serving="False")), require_ready=False)
    assert found.url == "http://router:8080"


def write_state(folder: Path, raw: dict[str, Any]) -> LocalSource:
    source = folder / "rl" / "skywork"
    source.mkdir(parents=True)
    (source / "pool.json").write_text(json.dumps(raw))
    (source / "key").write_text("local-key\n")
    return LocalSource({"REWARDPOOL_STATE_DIR": str(folder)})


async def test_a_pool_of_this_machine_is_read_from_its_state_file(tmp_path: Path) -> None:
    key_file = tmp_path / "rl" / "skywork" / "key"
    source = write_state(tmp_path, pool_object(status={"auth": {"keyFile": str(key_file)}}))
    pool = await source.read_pool("rl", "skywork")
    assert (pool.key, await source.read_keys(pool)) == ("rl/skywork", ("local-key",))


async def test_a_status_field_of_a_newer_operator_is_none_of_a_trainers_business(tmp_path: Path) -> None:
    source = write_state(tmp_path, pool_object(status={"invented": {"later": 1}}))
    assert (await source.read_pool("rl", "skywork")).status.url == "http://router:8080"


async def test_a_state_file_that_is_no_pool_is_named(tmp_path: Path) -> None:
    source = write_state(tmp_path, {"kind": "Pod"})
    with pytest.raises(PoolNotReadyError, match=r"pool\.json is not a RewardPool"):
        await source.read_pool("rl", "skywork")


async def test_running_pools_of_every_namespace_are_listed(tmp_path: Path) -> None:
    source = write_state(tmp_path, pool_object())
    assert await source.pool_names("other") == ["rl/skywork"]
    assert await LocalSource({"REWARDPOOL_STATE_DIR": str(tmp_path / "none")}).pool_names("rl") == []


async def test_a_missing_state_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PoolNotHere, match=str(tmp_path / "rl/skywork/pool.json")):
        await LocalSource({"REWARDPOOL_STATE_DIR": str(tmp_path)}).read_pool("rl", "skywork")


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_a_key_file_without_a_key_is_named(tmp_path: Path, content: str | None) -> None:
    key_file = tmp_path / "the-key-file"
    if content is not None:
        key_file.write_text(content)
    with pytest.raises(PoolAccessError, match="the-key-file"):
        await find(config=RewardConfig(url="http://there:1", key_file=key_file))


async def test_certificates_come_with_the_object(tmp_path: Path) -> None:
    pem = Authority(tmp_path).certificate.read_text()
    auth = {"caBundle": base64.b64encode(pem.encode()).decode()}
    found = await find_pool(CONFIG, environ={}, sources=[FakeSource(pool_object(status={"auth": auth}))])
    assert found.ca == pem


@pytest.mark.parametrize("bundle", ["not base64", base64.b64encode(b"no PEM").decode()])
async def test_certificates_that_cannot_be_read_are_an_error(bundle: str) -> None:
    source = FakeSource(pool_object(status={"auth": {"caBundle": bundle}}))
    with pytest.raises(PoolNotReadyError, match=r"status\.auth\.caBundle is not PEM in base64"):
        await find_pool(CONFIG, environ={}, sources=[source])

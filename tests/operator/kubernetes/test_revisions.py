"""Which revision is the present one, by what changed: the pool itself, or only the operator that looks at it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kube_builders import FUNCTION, a_pool

from rewardpool_api import RewardPool, RewardPoolStatus, names
from rewardpool_api.status import RolloutStatus
from rewardpool_kube.resources import Object
from rewardpool_operator.kubernetes import render, revisions
from rewardpool_operator.kubernetes.cache.objects import Objects
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.desired import left_running
from rewardpool_operator.kubernetes.desired import rendered as wanted_of
from rewardpool_operator.kubernetes.render import Revision
from rewardpool_operator.kubernetes.settings.pool_defaults import PoolDefaults


def rendered(pool: RewardPool, image: str = "own:1") -> Revision:
    return render.worker_revision(pool, image=image)


def serving(pool: RewardPool, revision: str, *, good: str | None = None) -> RewardPool:
    """The pool with a status by which that revision is the present one, and was the good one."""
    rollout = RolloutStatus(target_revision=revision, stable_revision=good or revision)
    return pool.model_copy(update={"status": RewardPoolStatus(current_revision=revision, rollout=rollout)})


def live(pool: RewardPool, revision: Revision, *, made: str = "2026-01-01T00:00:00Z") -> Object:
    manifest = render.worker_deployment(pool, revision, replicas=1)
    return {**manifest, "metadata": {**manifest["metadata"], "creationTimestamp": made}}


def there(*deployments: Object, files: bool = True) -> Objects:
    mounted = {name for item in deployments for name in revisions.files_of(item["spec"]["template"])}
    return Objects(pool={}, deployments=deployments, files=frozenset(mounted if files else ()))


FIRST = a_pool(**FUNCTION)
V1 = rendered(FIRST)


def test_an_upgraded_operator_keeps_what_runs_and_says_what_it_would_make_instead() -> None:
    pool, objects = serving(FIRST, V1.name), there(live(FIRST, V1))
    offered = rendered(pool, "own:2")
    kept = revisions.present(pool, offered, objects)
    assert (kept.name, kept.template, kept.spec) == (V1.name, V1.template, V1.spec)
    assert revisions.difference(kept, offered) == "image own:2 instead of own:1"


def test_changed_defaults_of_all_pools_keep_what_runs_and_offer_the_rest() -> None:
    pool, objects = serving(FIRST, V1.name), there(live(FIRST, V1))
    defaults = PoolDefaults.model_validate({"worker": {"priorityClassName": "scoring"}})
    offered = render.worker_revision(pool, image="own:1", defaults=defaults)
    kept = revisions.present(pool, offered, objects)
    assert kept.name == V1.name
    assert revisions.difference(kept, offered) == "another pod template"


@pytest.mark.parametrize(
    "change",
    [
        {"worker": {"drainSeconds": 5}},
        {"rollout": {"progressDeadlineSeconds": 60}},
    ],
)
def test_a_changed_time_loads_no_model_anew_and_is_offered(change: dict[str, Any]) -> None:
    pool = serving(a_pool(**FUNCTION, **change), V1.name)
    offered = rendered(pool)
    kept = revisions.present(pool, offered, there(live(FIRST, V1)))
    assert kept.name == V1.name
    assert "other times to start or drain" in str(revisions.difference(kept, offered))


def test_a_longer_deadline_makes_a_revision_anew_that_never_served() -> None:
    pool = serving(a_pool(**FUNCTION, rollout={"progressDeadlineSeconds": 3600}), V1.name, good="earlier")
    offered = rendered(pool)
    assert revisions.present(pool, offered, there(live(FIRST, V1))) is offered


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"name": "python", "args": ["--env=HOME"]}},
        {"sandbox": {}},
        {"engine": {"name": "python", "image": "own:1"}},
        {"worker": {"podTemplate": {"spec": {"nodeSelector": {"gpu": "h100"}}}}},
        {"router": {"auth": {"mode": "Disabled"}}},
    ],
)
def test_a_changed_spec_takes_what_today_s_operator_renders(change: dict[str, Any]) -> None:
    pool = serving(a_pool(**{**FUNCTION, **change}), V1.name)
    offered = rendered(pool, "own:2")
    assert revisions.present(pool, offered, there(live(FIRST, V1))) is offered


def test_a_restart_takes_what_today_s_operator_renders() -> None:
    metadata = FIRST.metadata.model_copy(update={"annotations": {names.ANNOTATION_RESTARTED_AT: "now"}})
    pool = serving(FIRST, V1.name).model_copy(update={"metadata": metadata})
    offered = rendered(pool, "own:2")
    assert revisions.present(pool, offered, there(live(FIRST, V1))) is offered


def test_going_back_to_an_earlier_spec_brings_its_revision_back_as_it_was() -> None:
    other = a_pool(**{**FUNCTION, "engine": {"name": "python", "args": ["--env=HOME"]}})
    second = rendered(other)
    pool = serving(FIRST, second.name)
    objects = there(live(FIRST, V1), live(other, second, made="2026-01-02T00:00:00Z"))
    assert revisions.present(pool, rendered(pool, "own:2"), objects).name == V1.name


def test_a_revision_whose_files_are_gone_is_made_anew() -> None:
    pool = serving(FIRST, V1.name)
    offered = rendered(pool, "own:2")
    assert revisions.present(pool, offered, there(live(FIRST, V1), files=False)) is offered


def test_an_edit_by_hand_is_undone_although_today_s_operator_renders_another_template() -> None:
    edited = live(FIRST, V1)
    edited = {**edited, "spec": {**edited["spec"], "template": json.loads(json.dumps(edited["spec"]["template"]))}}
    edited["spec"]["template"]["spec"]["containers"][0]["command"] = ["sleep", "1000"]
    pool = serving(FIRST, V1.name)
    assert revisions.present(pool, rendered(pool, "own:2"), there(edited)).template == V1.template


def test_a_revision_of_an_operator_that_noted_no_template_is_left_as_it_is_live() -> None:
    old = live(FIRST, replace(V1, name="0ld"))
    del old["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]
    pool = serving(FIRST, "0ld")
    kept = revisions.present(pool, rendered(pool), there(old))
    manifest = render.worker_deployment(pool, kept, replicas=1)
    assert (kept.name, manifest["spec"]["template"]) == ("0ld", old["spec"]["template"])


@pytest.mark.parametrize(
    "pod_template",
    [
        {"spec": None},
        {"spec": "x"},
        {"spec": {"volumes": "x"}},
        {"spec": {"volumes": [1, None, {"configMap": None}, {"configMap": {"name": 1}}, {"configMap": {}}]}},
        {"metadata": "x"},
    ],
)
def test_a_pod_template_that_makes_no_pod_fails_no_pass(pod_template: dict[str, Any]) -> None:
    pool = a_pool(**FUNCTION, worker={"podTemplate": pod_template}, router={"podTemplate": pod_template})
    wanted = wanted_of(pool, Keys(pool="p", admin="a"), image="own:1")
    routers = next(item for item in wanted.shared if item["kind"] == "Deployment")
    left = left_running(wanted, pool, there(live(FIRST, V1), routers), may_upgrade=lambda: False)
    assert left.revision is wanted.revision


@given(st.text(max_size=40) | st.sampled_from(["[]", "{}", '{"worker": 1}', "null", "[" * 20]))
def test_no_text_in_a_deployments_annotations_fails_a_pass(text: str) -> None:
    odd = live(FIRST, replace(V1, name="odd"))
    odd["metadata"]["annotations"] = {names.ANNOTATION_SPEC: text, names.ANNOTATION_TEMPLATE: text}
    pool = serving(FIRST, "odd")
    offered = rendered(pool)
    assert revisions.present(pool, offered, there(odd)).name in ("odd", offered.name)

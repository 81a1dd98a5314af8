"""What `explain` says, for every way in which a pool can be in trouble. Quoted words are those of Kubernetes 1.34."""

from datetime import UTC, datetime

import pytest
from support.kube_builders import a_pod

from rewardpool_api import RewardPool, names
from rewardpool_cli.explain import Evidence, explain, newest_warnings
from rewardpool_cli.explain.advice import cause_of
from rewardpool_worker import diagnosis

NOW = datetime(2026, 1, 1, 12, 10, tzinfo=UTC)
QUEUE = {
    "minReplicas": 0,
    "maxReplicas": 4,
    "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}},
}


def condition(kind, status, reason, message=""):
    time = "2026-01-01T12:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def a_pool(*conditions, generation=1, status=None, **spec):
    return RewardPool.model_validate(
        {
            "metadata": {
                "name": "rm",
                "namespace": "rl",
                "generation": generation,
                "creationTimestamp": "2026-01-01T12:00:00Z",
            },
            "spec": {"model": {"source": "hf://org/model"}, "replicas": 1, **spec},
            "status": {
                "observedGeneration": 1,
                "scaling": {"desired": 1, "reason": "spec.replicas"},
                "conditions": list(conditions),
                **(status or {}),
            },
        }
    )


def seen(pool, *pods, **fields):
    return Evidence(now=NOW, pool=pool, pods=pods, **fields)


def causes(evidence, kind="problem"):
    return [item.cause for item in explain(evidence) if item.kind == kind]


def only(evidence, cause):
    (found,) = [item for item in explain(evidence) if item.cause == cause]
    return found


def unscheduled(message, name="w0"):
    pod = a_pod(name, ip=None)
    pod["status"]["containerStatuses"] = []
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    return pod


def waiting(reason, message="", **fields):
    return a_pod(state={"waiting": {"reason": reason, "message": message}}, started=False, **fields)


def ended(message="", *, exit_code=1, reason="Error"):
    state = {"terminated": {"exitCode": exit_code, "reason": reason, "message": message}}
    return a_pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=state, started=False)


SERVING = condition("Serving", "True", "Serving", "1 of 1 replicas serve")


def test_a_pool_that_serves_has_no_problem():
    evidence = seen(a_pool(SERVING), a_pod(), a_pod("r0", component="router"))
    assert causes(evidence) == causes(evidence, "waiting") == []
    assert only(evidence, "Size").what == "1 replica is wanted, because spec.replicas says so: no load changes that"


NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available."
NO_CLAIM = '0/1 nodes are available: persistentvolumeclaim "weights" not found. preemption: 0/1 nodes are available.'
UNBOUND = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
TAINTED = "0/2 nodes are available: 2 node(s) had untolerated taint {gpu: reserved}."
NO_SECRET = 'MountVolume.SetUp failed for volume "token" : secret "hub" not found'
NO_CONFIG_MAP = 'MountVolume.SetUp failed for volume "golden" : configmap "golden" not found'
NO_PATH = 'MountVolume.SetUp failed for volume "model" : hostPath type check failed: /models/rm is not a directory'


@pytest.mark.parametrize(
    ("pod", "cause", "words"),
    [
        (unscheduled(NO_GPU), "Unschedulable", "there is not enough nvidia.com/gpu"),
        (unscheduled(TAINTED), "Unschedulable", "no node is allowed to or can take it"),
        (unscheduled(NO_CLAIM), "MissingClaim", 'PersistentVolumeClaim "weights", which does not exist'),
        (unscheduled(UNBOUND), "UnboundClaim", "a PersistentVolumeClaim that has no volume yet"),
        (waiting("CreateContainerConfigError", 'secret "hub" not found'), "MissingSecret", 'the Secret "hub"'),
        (
            waiting("CreateContainerConfigError", "couldn't find key token in Secret rl/hub"),
            "MissingSecret",
            'the Secret "hub"',
        ),
        (
            waiting("CreateContainerConfigError", 'configmap "env" not found'),
            "MissingConfigMap",
            'the ConfigMap "env"',
        ),
        (waiting("ImagePullBackOff", "Back-off pulling image"), "Image", "cannot be pulled"),
        (waiting("CreateContainerError", "no such runtime"), "NotStarting", "cannot start it"),
        (ended("torch.OutOfMemoryError: CUDA out of memory."), "OutOfMemory", "does not fit"),
        (ended("", exit_code=137, reason="OOMKilled"), "OutOfMemory", "does not fit"),
        (ended("vllm: error: unrecognized arguments: --no-such"), "BadArguments", "refuses its arguments"),
        (ended("ERROR model refused: it lacks score.weight"), "ModelRefused", "cannot be served as it is"),
        (ended("cannot load the function rewards:f: rewards.py:3: SyntaxError: "), "Function", "cannot be loaded"),
        (ended("RuntimeError: No accelerator (CUDA, XPU) is available."), "NoAccelerator", "finds no GPU"),
        (ended("not started: SandboxMissingError: no Landlock"), "NoSandbox", "what spec.sandbox keeps from it"),
        (ended("something else"), "Ends", "ended again"),
    ],
)
def test_the_trouble_of_a_worker_has_its_cause(pod, cause, words):
    evidence = seen(a_pool(condition("Serving", "False", "Starting")), pod)
    found = only(evidence, cause)
    assert causes(evidence) == [cause]
    assert words in found.what
    assert found.said or cause == "OutOfMemory"
    assert found.next


def test_each_reason_for_which_a_worker_ends_has_a_cause():
    reasons = {symptom.reason for symptom in diagnosis._SYMPTOMS} | diagnosis._FETCH_REASONS | {"EngineExited"}
    assert {reason for reason in reasons if cause_of(reason) == "Other"} == {"TlsUnusable"}


@pytest.mark.parametrize(
    ("note", "cause"),
    [
        (NO_SECRET, "MissingSecret"),
        (NO_CONFIG_MAP, "MissingConfigMap"),
        (NO_PATH, "MissingPath"),
        ("failed to create pod sandbox", "NotStarting"),
    ],
)
def test_a_pod_whose_containers_do_not_start_is_explained_by_its_newest_warning(note, cause):
    stuck = waiting("ContainerCreating")
    evidence = seen(a_pool(), stuck, warnings={"w0": f"FailedMount: {note}"})
    assert only(evidence, cause).said.endswith(note)


def test_the_image_is_named():
    pod = waiting("ErrImagePull", "not found")
    pod["spec"]["containers"][0]["image"] = "registry.example/engine:none"
    assert "registry.example/engine:none" in only(seen(a_pool(), pod), "Image").what


def test_a_container_that_initialises_comes_before_the_engine():
    pod = waiting("PodInitializing")
    state = {
        "terminated": {
            "exitCode": 1,
            "message": "OSError: org/model is not a local folder and is not a valid model identifier",
        }
    }
    pod["status"]["initContainerStatuses"] = [{"name": "download", "state": state}]
    assert causes(seen(a_pool(), pod)) == ["ModelNotFound"]


def test_pods_with_the_same_trouble_are_told_together():
    pods = [unscheduled(NO_GPU, f"rm-worker-abc-{number}") for number in range(3)]
    evidence = seen(a_pool(), *pods, a_pod("w9"))
    found = only(evidence, "Unschedulable").what
    assert found == "3 of 4 worker pods wait for a node: there is not enough nvidia.com/gpu"


def test_the_same_trouble_is_told_once_though_its_words_differ():
    pods = []
    for name in ("rm-worker-6f7d8c9b5-abcde", "rm-worker-6f7d8c9b5-fghij"):
        message = f"back-off 5m0s restarting failed container=worker pod={name}_rl"
        pods.append(
            a_pod(name, state={"waiting": {"reason": "CreateContainerError", "message": message}}, started=False)
        )
    assert only(seen(a_pool(), *pods), "NotStarting").what.startswith("2 of 2 worker pods")


def test_a_worker_that_starts_is_waited_for_within_its_time():
    found = only(seen(a_pool(), a_pod(started=False)), "Starting")
    assert found.kind == "waiting"
    assert found.what == "The worker pod is starting: no score yet, after 600 s of 900 s allowed"


def test_the_reason_for_no_score_is_said_beside_a_worker_that_starts():
    message = "0 of 1 replicas serve, 1 are starting or failing; w0 gives no score: The model `sn` does not exist."
    pool = a_pool(condition("WorkersReady", "False", "NoScore", message))
    assert only(seen(pool, a_pod(started=False)), "Starting").said == message


def test_a_worker_that_leaves_is_no_trouble():
    leaving = a_pod(started=False)
    leaving["metadata"]["annotations"] = {names.ANNOTATION_DRAINING_SINCE: "2026-01-01T12:09:00Z"}
    evidence = seen(a_pool(SERVING, status={"drainingReplicas": 1}), leaving)
    assert causes(evidence) == []
    assert causes(evidence, "waiting") == ["Draining"]


def test_a_router_without_an_image_is_told_before_the_workers_that_start():
    router = waiting("ErrImagePull", "not found", name="r0", component="router")
    assert [item.cause for item in explain(seen(a_pool(), a_pod(started=False), router))][:2] == [
        "Image",
        "Starting",
    ]


def test_a_suspended_pool_says_how_to_resume():
    pool = a_pool(
        condition("Serving", "False", "Suspended"), suspend=True, status={"scaling": {"desired": 0, "reason": ""}}
    )
    evidence = seen(pool)
    assert causes(evidence) == ["Suspended"]
    assert only(evidence, "Suspended").next == (
        """kubectl patch rewardpool rm -n rl --type merge -p '{"spec":{"suspend":false}}'""",
    )


def test_a_pool_that_no_operator_looked_at_says_so():
    pool = a_pool(status={"observedGeneration": -1, "scaling": None})
    assert causes(seen(pool)) == ["NotSeen"]
    assert "600 s ago" in only(seen(pool), "NotSeen").what


def test_a_new_spec_that_was_not_looked_at_is_told_from_an_old_one():
    found = only(seen(a_pool(SERVING, generation=3), a_pod()), "NotSeen")
    assert "generation 3; the status is about 1" in found.what


def test_what_the_api_server_refuses_is_quoted():
    words = 'Deployment.apps "rm-router" is invalid: spec.template.spec.containers[0].name: Required value'
    evidence = seen(a_pool(condition("Degraded", "True", "ApplyFailed", words)))
    assert causes(evidence) == ["Refused"]
    assert only(evidence, "Refused").said == words


@pytest.mark.parametrize("reason", ["SecretsUnreadable", "InvalidObject", "ReconcileFailed", "CertificateUnreadable"])
def test_what_the_operator_cannot_do_is_told_in_its_words_beside_what_else_is_wrong(reason):
    words = "since 2026-01-01T12:00:00Z: secrets is forbidden"
    evidence = seen(a_pool(condition("Degraded", "True", reason, words)))
    assert causes(evidence) == ["NotReconciled"]
    found = only(evidence, "NotReconciled")
    assert (found.said, found.what.split(":")[0]) == (words, reason)
    assert found.next


def test_a_quota_that_keeps_pods_from_being_made_is_quoted():
    words = "pods is forbidden: exceeded quota: gpus"
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words}
    deployment = {"metadata": {"name": "rm-worker-new"}, "status": {"conditions": [failure]}}
    evidence = seen(a_pool(condition("Degraded", "True", "FailedCreate", words)), deployments=(deployment,))
    assert causes(evidence) == ["NoPodsMade"]
    assert only(evidence, "NoPodsMade").said == words


@pytest.mark.parametrize(
    ("deployment", "words", "field"),
    [
        ("rm-worker-new", "failed quota: all: must specify limits.cpu for: download", "spec.worker.resources"),
        ("rm-router", "failed quota: all: must specify limits.cpu for: router", "poolDefaults.router.resources"),
        ("rm-router", "exceeded quota: all", "spec.router.podTemplate"),
        ("rm-gateway", "exceeded quota: all", "spec.gateway.podTemplate"),
    ],
)
def test_the_advice_about_a_quota_names_the_field_of_that_pod(deployment, words, field):
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words}
    found = {"metadata": {"name": deployment}, "status": {"conditions": [failure]}}
    evidence = seen(a_pool(condition("Degraded", "True", "FailedCreate", words)), deployments=(found,))
    (_, advice) = only(evidence, "NoPodsMade").next
    assert field in advice
    assert ("say what is missing" in advice) == ("must specify" in words)


def rollout(**fields):
    return {"currentRevision": "new", "rollout": {"targetRevision": "old", "stableRevision": "old", **fields}}


def test_a_revision_that_was_rolled_back_offers_the_spec_that_serves():
    failed = {
        "revision": "new",
        "reason": "ProgressDeadlineExceeded",
        "message": "no score",
        "time": "2026-01-01T12:00:00Z",
    }
    degraded = condition("Degraded", "True", "RolledBack", "revision old serves")
    evidence = seen(a_pool(SERVING, degraded, status=rollout(failed=failed)), a_pod())
    assert causes(evidence) == ["RolledBack"]
    found = only(evidence, "RolledBack")
    assert found.what == "Revision new failed; revision old serves instead"
    assert found.next[-1].endswith("rewardpool rollback rl/rm")


def test_a_parity_that_failed_offers_the_tolerance():
    failed = {"revision": "new", "reason": "ParityExceeded", "message": "0.3 > 0.1", "time": "2026-01-01T12:00:00Z"}
    evidence = seen(a_pool(SERVING, status=rollout(failed=failed)), a_pod())
    assert causes(evidence) == ["Parity"]
    assert "maxAbsDiff" in only(evidence, "Parity").next[0]


def test_a_golden_set_that_cannot_be_used_is_told():
    parity = {"revision": "new", "outcome": "Unusable", "message": "no ConfigMap golden"}
    evidence = seen(a_pool(SERVING, status=rollout(parity=parity)), a_pod())
    assert only(evidence, "Parity").said == "no ConfigMap golden"


def test_a_first_revision_that_never_answered_has_nothing_to_go_back_to():
    progressing = condition("Progressing", "False", "ProgressDeadlineExceeded", "no worker answered")
    assert "Deadline" in causes(seen(a_pool(progressing), a_pod(started=False)))


def test_paused_rollouts_are_a_note():
    evidence = seen(a_pool(SERVING, rollout={"paused": True}), a_pod())
    assert "Paused" in causes(evidence, "note")


def test_a_rollout_under_way_is_told_with_both_revisions():
    progressing = condition("Progressing", "True", "Surging", "rolling")
    evidence = seen(a_pool(SERVING, progressing, status=rollout()), a_pod())
    assert only(evidence, "Rolling").what == "A rollout from revision old to new is under way"


def test_without_the_right_to_list_pods_the_condition_is_what_there_is():
    degraded = condition("Degraded", "True", "OutOfMemory", "killed\nCUDA out of memory")
    evidence = seen(a_pool(degraded), unreadable={"pods": "you may not list pods in namespace rl"})
    found = explain(evidence)
    assert found[0].cause == "OutOfMemory"
    assert found[-1].what == "The pods could not be looked at"


def test_a_condition_is_not_told_twice():
    degraded = condition("Degraded", "True", "ImagePull", "the image cannot be had")
    assert causes(seen(a_pool(degraded), waiting("ErrImagePull", "not found"))) == ["Image"]


def test_a_local_pool_that_was_stopped_says_how_to_start_it():
    gone = condition("Serving", "False", "SupervisorGone", "its supervisor was killed")
    evidence = seen(a_pool(gone, status={"scaling": None}), is_local=True)
    assert only(evidence, "Stopped").next == ("rewardpool up -f MANIFEST",)


def test_a_pool_that_is_being_deleted_names_what_it_waits_for():
    pool = a_pool(SERVING)
    metadata = pool.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T12:09:00Z", "finalizers": ["x/y"]})
    found = explain(seen(pool.model_copy(update={"metadata": metadata})))[0]
    assert found.cause == "BeingDeleted"
    assert found.next == ("it waits for its finalizers: x/y",)


def test_commands_are_those_of_the_program_that_was_called():
    evidence = seen(a_pool(), ended("something"), program="kubectl rewardpool")
    assert only(evidence, "Ends").next == ("kubectl rewardpool logs rl/rm --component worker --previous",)


def test_the_newest_warning_about_each_pod_is_taken():
    def event(name, time, note, **fields):
        regarding = {"kind": "Pod", "name": name}
        return {
            "regarding": regarding,
            "type": "Warning",
            "reason": "Failed",
            "note": note,
            "eventTime": time,
            **fields,
        }

    events = [
        event("a", "2026-01-01T12:00:00Z", "old", series={"lastObservedTime": "2026-01-01T12:05:00Z"}),
        event("a", "2026-01-01T12:03:00Z", "newer"),
        event("b", "2026-01-01T12:00:00Z", "fine", type="Normal"),
        {**event("rm", "2026-01-01T12:00:00Z", "pool"), "regarding": {"kind": "RewardPool", "name": "rm"}},
    ]
    assert newest_warnings(events) == {"a": "Failed: old"}


def test_a_condition_that_only_the_operator_sees_is_told_with_its_meaning():
    degraded = condition("Degraded", "True", "TlsUnusable", "there is no Secret tls")
    found = only(seen(a_pool(SERVING, degraded), a_pod()), "Other")
    assert found.what.startswith("TlsUnusable: The Secret of spec.router.tls is missing")
    assert found.said == "there is no Secret tls"


def test_a_worker_on_a_node_that_does_not_report_is_no_failure_of_its_own():
    pod = a_pod()
    pod["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert causes(seen(a_pool(), pod)) == ["NodeLost"]

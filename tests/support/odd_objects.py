"""What pods and Leases may say, drawn by hypothesis: as an API server keeps it, whoever wrote it."""

from hypothesis import strategies as st
from support.drawing import Drawn, anything, as_json, loose_texts, mostly, numbers, objects, texts
from support.pool_surroundings import KEY

from rewardpool_api import names
from rewardpool_kube.resources import Object

times = st.sampled_from(["2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
reports = as_json(objects({}, reason=mostly(texts), message=mostly(loose_texts), commit=mostly(texts)))
messages = st.one_of(texts, reports, as_json(anything))
reasons = st.one_of(texts, st.sampled_from(["CrashLoopBackOff", "ImagePullBackOff", "OOMKilled", "ContainerCreating"]))
ended = objects(
    {"exitCode": st.sampled_from([0, 1, 137, -(2**31), 2**31 - 1])},
    reason=reasons,
    message=messages,
    signal=st.integers(0, 64),
    startedAt=times,
    finishedAt=times,
)
states = st.one_of(
    st.just({}),
    st.builds(lambda at: {"running": {"startedAt": at}}, times),
    st.builds(lambda waiting: {"waiting": waiting}, objects({}, reason=reasons, message=messages)),
    st.builds(lambda terminated: {"terminated": terminated}, ended),
)


def container_statuses(name: str) -> Drawn:
    """Of one container; sometimes there is none yet."""
    status = objects(
        {"name": st.just(name), "restartCount": st.sampled_from([0, 1, 2**31 - 1]), "ready": st.booleans()},
        started=st.booleans(),
        state=states,
        lastState=states,
        containerID=texts,
    )
    return st.lists(status, max_size=1)


conditions = st.lists(
    objects(
        {
            "type": st.one_of(
                st.sampled_from(["Ready", "PodScheduled", "DisruptionTarget", names.CONDITION_HOLDS_WORKERS]), texts
            ),
            "status": st.sampled_from(["True", "False", "Unknown"]),
        },
        reason=reasons,
        message=messages,
        lastTransitionTime=times,
    ),
    max_size=4,
)


def pods_of(component: str) -> Drawn:
    """What differs between pods of one component."""
    return objects(
        {
            "metadata": objects(
                {},
                annotations=st.dictionaries(
                    st.sampled_from(
                        [
                            names.ANNOTATION_DRAINING_SINCE,
                            names.ANNOTATION_FLAVOR,
                            names.ANNOTATION_KEYS,
                            names.ANNOTATION_TLS,
                            "controller.kubernetes.io/pod-deletion-cost",
                        ]
                    ),
                    st.one_of(texts, times, st.just("smg")),
                    max_size=3,
                ),
                deletionTimestamp=times,
            ),
            "status": objects(
                {"conditions": conditions, "containerStatuses": container_statuses(component)},
                phase=st.sampled_from(["Pending", "Running", "Unknown"]),
                podIP=st.sampled_from(["127.0.0.1", "::1", "0.0.0.0"]),
                initContainerStatuses=container_statuses("download"),
                reason=reasons,
                message=messages,
            ),
        }
    )


demands = objects(
    {},
    job=mostly(st.just("grpo")),
    phase=mostly(st.sampled_from(["Starting", "Rollout", "Update", "Ended"])),
    samples=mostly(st.integers(0, 10**12), numbers),
    startsInSeconds=mostly(st.integers(0, 600), numbers),
    spreadSeconds=mostly(st.integers(0, 600), numbers),
    everySeconds=mostly(st.integers(0, 600), numbers),
    endsInSeconds=mostly(st.integers(0, 600), numbers),
    stalled=mostly(st.booleans()),
)
leases = st.lists(
    objects(
        {"name": st.sampled_from(["demand-rm.grpo", "demand-rm.b", "x", "demand-"])},
        demand=st.one_of(as_json(demands), as_json(demands), as_json(anything), texts),
        holder=mostly(st.just("grpo"), texts),
        seconds=mostly(st.just(15), st.sampled_from([1, 2**31 - 1])),
        written=times,
        spec=st.none(),
    ),
    max_size=3,
    unique_by=lambda lease: lease["name"],
)


def lease_of(drawn: Object) -> Object:
    """As the API server keeps it, which checks types and times."""
    said = {names.ANNOTATION_DEMAND: drawn["demand"]} if "demand" in drawn else {}
    metadata = {
        "name": drawn["name"],
        "labels": {names.LABEL_POOL: KEY[1], names.LABEL_COMPONENT: names.COMPONENT_DEMAND},
        "annotations": said,
    }
    if "written" in drawn:
        metadata["managedFields"] = [{"time": drawn["written"]}]
    spec = {"holderIdentity": drawn.get("holder"), "leaseDurationSeconds": drawn.get("seconds")}
    return {
        "metadata": metadata,
        **({} if "spec" in drawn else {"spec": {name: value for name, value in spec.items() if value is not None}}),
    }

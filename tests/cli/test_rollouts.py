"""Restarting, rolling back, scaling: what is decided before the API server is asked."""

import json

import pytest
from support.decide_builders import a_pool

from rewardpool_api import RewardPoolStatus, names
from rewardpool_cli.commands.rollback import earlier_revision, rollback_patch
from rewardpool_cli.commands.scale import refuse
from rewardpool_cli.errors import RefusedError
from rewardpool_cli.waiting import outlook

QUEUE = {"maxReplicas": 4, "policy": {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 10}}}
EXTERNAL = {"maxReplicas": 4, "policy": {"type": "External"}}


def status(*, revision="new", ready=2, desired=2, draining=0, progressing=("False", "Stable"), generation=1, **rollout):
    kind, reason = progressing
    return RewardPoolStatus.model_validate(
        {
            "observedGeneration": generation,
            "currentRevision": revision,
            "readyReplicas": ready,
            "drainingReplicas": draining,
            "scaling": {"desired": desired, "reason": ""},
            "conditions": [
                {
                    "type": "Progressing",
                    "status": kind,
                    "reason": reason,
                    "message": "so it is",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "rollout": {"targetRevision": revision, **rollout},
        }
    )


def test_a_pool_that_rolled_back_goes_to_the_good_revision():
    assert earlier_revision(a_pool(status(stableRevision="old", previousRevision="older"))) == "old"


def test_a_pool_that_serves_goes_to_the_good_revision_before():
    assert earlier_revision(a_pool(status(stableRevision="new", previousRevision="old"))) == "old"


@pytest.mark.parametrize("pool", [a_pool(), a_pool(status(stableRevision="new"))])
def test_a_pool_without_an_earlier_revision_is_refused(pool):
    with pytest.raises(RefusedError):
        earlier_revision(pool)


def deployment(*, restarted_at=None, **annotations):
    template = {"metadata": {"annotations": {names.ANNOTATION_RESTARTED_AT: restarted_at}} if restarted_at else {}}
    metadata = {"labels": {names.LABEL_REVISION: "old"}, "annotations": annotations}
    return {"metadata": metadata, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        (None, None, []),
        ("now", "now", []),
        ("now", None, [{"op": "remove", "path": "/metadata/annotations/rewardpool.dev~1restarted-at"}]),
        (
            None,
            "then",
            [
                {"op": "add", "path": "/metadata/annotations", "value": {}},
                {"op": "add", "path": "/metadata/annotations/rewardpool.dev~1restarted-at", "value": "then"},
            ],
        ),
    ],
)
def test_a_rollback_over_a_restart_goes_back_to_the_very_revision(before, after, patch):
    annotations = {names.ANNOTATION_RESTARTED_AT: before} if before else {}
    pool = {"metadata": {"resourceVersion": "7", "annotations": annotations}, "spec": {}}
    old = deployment(restarted_at=after, **{names.ANNOTATION_SPEC: "{}"})
    assert rollback_patch(pool, old)[1:] == patch


def test_a_rollback_holds_only_for_the_pool_as_it_was_read():
    pool = {"metadata": {"resourceVersion": "7"}, "spec": {"model": {"source": "new"}}}
    parts = json.dumps({"model": {"source": "old"}})
    assert rollback_patch(pool, deployment(**{names.ANNOTATION_SPEC: parts})) == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/spec/model", "value": {"source": "old"}},
    ]


def test_a_revision_that_does_not_say_what_it_was_made_from_is_refused():
    with pytest.raises(RefusedError, match="an older operator made it"):
        rollback_patch({"metadata": {"resourceVersion": "7"}, "spec": {}}, deployment())


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (a_pool(autoscaling=QUEUE), "by policy QueueDepth, which would undo it"),
        (a_pool(autoscaling=EXTERNAL), "9 is outside the bounds 1 to 4"),
        (a_pool(suspend=True), "suspended"),
    ],
)
def test_a_number_that_would_not_hold_is_refused(pool, words):
    with pytest.raises(RefusedError, match=words):
        refuse(pool, 9)


def test_a_number_within_the_bounds_of_an_external_policy_is_fine():
    refuse(a_pool(autoscaling=EXTERNAL), 3)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (status(generation=0), "unseen"),
        (status(revision="old"), "unseen"),
        (status(progressing=("True", "Surging")), "waiting"),
        (status(ready=1), "waiting"),
        (status(draining=1), "waiting"),
        (status(), "done"),
        (status(ready=0, desired=0), "done"),
        (status(progressing=("False", "Paused")), "done"),
        (status(progressing=("False", "RolledBack")), "failed"),
        (status(progressing=("False", "ProgressDeadlineExceeded")), "failed"),
    ],
)
def test_how_far_a_rollout_has_come(seen, state):
    assert outlook(a_pool(seen), revision_before="old").state == state


def test_a_change_of_size_keeps_the_revision():
    assert outlook(a_pool(status()), revision_before=None).state == "done"

"""Whose leaving would make room, in the words of scheduler and quota."""

import pytest

from rewardpool_control.decide.room import GATED, lacks_room

NONE_HELPS = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
ONE_HELPS = (
    "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
    "2 Preemption is not helpful for scheduling."
)
FULL = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
TAINTED = "0/3 nodes are available: 1 node(s) had untolerated taint {maintenance: true}, 2 Insufficient nvidia.com/gpu."
CORDONED = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu."
QUOTA = 'pods "w" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (FULL, True),
        (f"{FULL} {ONE_HELPS}", True),
        (f"{FULL} {NONE_HELPS}", False),
        # CPU nodes are always short of GPUs: with the GPU node tainted or cordoned no worker's leaving helps.
        (TAINTED, False),
        (f"{TAINTED} {NONE_HELPS}", False),
        (f"{CORDONED} {NONE_HELPS}", False),
        (f"{TAINTED} {ONE_HELPS}", True),
        ("0/2 nodes are available: 1 Insufficient cpu, 1 Too many pods.", True),
        ("0/1 nodes are available: 1 node(s) had volume node affinity conflict.", False),
        (QUOTA, True),
        (f"{QUOTA}, used: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=2", True),
        # A worker that is larger than the whole quota fits no better when another one has left.
        (f"{QUOTA},pods=3, used: requests.nvidia.com/gpu=0,pods=1, limited: requests.nvidia.com/gpu=4,pods=2", False),
        (f"{QUOTA}, used: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=0", False),
        (f"{QUOTA}, used: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=", True),
        (f"{QUOTA}, used: requests.memory=1Gi, limited: requests.memory=2Gi", True),
        (f"{GATED}: Scheduling is blocked due to non-empty scheduling gates", False),
        ('admission webhook "policy" denied the request', False),
        ("Insufficient nvidia.com/gpu: 1 needed, 0 of 2 free; GPU 0 is rl/rm's; GPU 1 is rl/rm's", True),
        ("no node has a free GPU", False),
        ("", False),
    ],
)
def test_words_that_say_whether_a_pods_leaving_makes_room(words: str, expected: bool) -> None:
    assert lacks_room(words) is expected

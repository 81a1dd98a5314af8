"""What the end-to-end runs refuse to touch."""

import pytest

from cluster.processes import ClusterError
from installation import refuse_used_cluster


class FakeCluster:
    """Answers every kubectl with one text."""

    description = "somebody's cluster"

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def kubectl(self, *args: str) -> str:
        return self._answer


def test_a_cluster_with_reward_pools_is_refused() -> None:
    cluster = FakeCluster("customresourcedefinition.apiextensions.k8s.io/rewardpools.rewardpool.dev\n")
    with pytest.raises(ClusterError, match="somebody's cluster has the CRD"):
        refuse_used_cluster(cluster)  # type: ignore[arg-type]


def test_a_cluster_without_them_is_taken() -> None:
    refuse_used_cluster(FakeCluster(""))  # type: ignore[arg-type]

"""The cluster that the tests on a real API server share."""

from support.operator_cluster import cluster, shared_cluster

__all__ = ["cluster", "shared_cluster"]

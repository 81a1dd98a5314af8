"""The cluster that the tests on a real API server share."""

from support.operator_cluster import cluster

__all__ = ["cluster"]

"""A HorizontalPodAutoscaler on a pool's scale subresource, as docs/autoscaling.md has it."""

from typing import Any

from rewardpool_api import names

METRIC = "rewardpool_pool_requests"
"""What the operator tells Prometheus of every pool."""


def hpa(pool: str, *, target: int, maximum: int, **spec: Any) -> dict[str, Any]:
    """An HPA that gives each replica `target` requests; `spec` as in a manifest."""
    metric = {"name": METRIC, "selector": {"matchLabels": {"pool": pool}}}
    per_replica = {"type": "AverageValue", "averageValue": str(target)}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": pool},
        "spec": {
            "scaleTargetRef": {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": pool},
            "minReplicas": 1,
            "maxReplicas": maximum,
            "metrics": [{"type": "External", "external": {"metric": metric, "target": per_replica}}],
            **spec,
        },
    }

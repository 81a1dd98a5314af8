"""A pool that changes from vLLM to SGLang under load, on a real cluster: `make e2e-engines`, which takes half an hour.

    story      two vLLM pods; a rollout to two SGLang pods; token ids that no vocabulary has; `kill -9`; one replica
    manifests  the pool on each engine, and the golden set that the rollout is compared by
    __main__   a cluster of its own, a table, `.rewardpool/e2e/engines.json`

Callers ask all the while, and every score is compared with transformers'. The callers are those of `autoscaling`.
"""

"""Pools on Kubernetes: from a RewardPool object to pods, and back to its status.

    render/       a pool -> the manifests that it should own (pure)
    pods.py       a pod object -> what a snapshot says of a worker or a router (pure)
    compare.py    a manifest and the live object -> whether they differ (pure)
    client.py     the API server, as plain JSON objects
    observe.py    API server, routers and workers -> Snapshot
    apply.py      Plan -> API server and routers, in the plan's order, writing only what differs
    pool_loop.py  one pool: observe, decide, apply, wait; again
    permissions.py  the verbs all of that takes

`rewardpool_operator.main` wires kopf's watches to the loops.
"""

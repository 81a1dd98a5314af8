"""Pools on Kubernetes: from a RewardPool object to pods, and back to its status.

What there is, and whose turn it is:

    client.py       the API server, as plain JSON objects
    owned.py        the kinds of objects that a pool owns, and what is kept of each
    reflector.py    one kind, listed and watched into the store
    store.py        all pools with what they own, in memory (pure)
    queue.py        which pool is looked at when; so many passes at a time
    cadence.py      how soon a pool is looked at again when nothing happens (pure)
    leader.py       which of several operators acts
    operator.py     all of these together

One pass over one pool:

    keeper.py       what is remembered of a pool, and the pass
    secret_reader.py, witness.py, key_keeper.py, rotation.py    its Secrets and the keys in them
    observe.py      store, routers and workers -> Snapshot; asking.py: nobody silent holds it up
    pods.py         a pod object -> what a snapshot says of a worker or a router (pure)
    render/         a pool -> the manifests that it should own (pure)
    wanted.py       all of them together; compare.py: a manifest and the live object -> whether they differ (pure)
    apply.py        Plan -> API server and routers, in the plan's order; upkeep.py: writing only what differs
    telling.py      the status and events, with what Kubernetes refused (pure)

    permissions.py  the verbs all of that takes

`rewardpool_operator.main` is the process around it.
"""

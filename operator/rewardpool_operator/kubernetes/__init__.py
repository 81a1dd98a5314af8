"""Pools on Kubernetes: from a RewardPool object to pods, and back to its status.

What there is, and whose turn it is:

    cache/              every kind of object that pools own, listed once, watched, and kept in memory
    queue/              which pool is reconciled when; how soon again when nothing happens
    leader.py           which of several operators acts
    settings/           what whoever installs the operator says of all pools
    manager.py          all of these together

One pass over one pool:

    pool_reconciler.py  what is remembered of a pool, and the pass
    credentials/        its keys and certificate: where they lie and how they change
    observe.py          store, routers and workers -> Snapshot
    demands.py          what training jobs announce; what they leave is removed
    polls/              what a pass asks and does not wait for
    workload/           a pod object -> what a snapshot says of a worker or a router (pure)
    render/             a pool -> the manifests that it should own (pure)
    desired.py          all of them together
    manifests/          a manifest over another, and beside the live object (pure)
    reconcilers/        credentials, then Plan -> routers' lists, owned objects, status: each with its own errors
    steps.py            which of them fail, since when, and when each is tried again
    ensure.py           writing only what differs
    events/             each piece of news once, as an event and in the log (pure)

`rewardpool_kube` has the client of the API server, `rewardpool_operator.main` is the process around it all.
"""

"""Pools on Kubernetes: from a RewardPool object to pods, and back to its status.

What there is, and whose turn it is:

    cache/              every kind of object that pools own, listed once, watched, and kept in memory
    workqueue.py        which pool is reconciled when; so many passes at a time
    requeue.py          how soon a pool is reconciled again when nothing happens (pure)
    leader.py           which of several operators acts
    manager.py          all of these together

One pass over one pool:

    pool_reconciler.py  what is remembered of a pool, and the pass
    credentials/        its keys and certificate: where they lie and how they change
    observe.py          store, routers and workers -> Snapshot
    demands.py          what training jobs announce; what they leave is removed
    polls/              what a pass asks and does not wait for
    pods.py             a pod object -> what a snapshot says of a worker or a router (pure)
    render/             a pool -> the manifests that it should own (pure)
    desired.py          all of them together
    diff.py             a manifest and the live object -> whether they differ (pure)
    reconcilers/        credentials, then Plan -> routers' lists, owned objects, status: each with its own errors
    steps.py            which of them fail, since when, and when each is tried again
    ensure.py           writing only what differs
    recorder.py         events as objects (pure)
    event_correlator.py each event once

`rewardpool_kube` has the client of the API server, `rewardpool_operator.main` is the process around it all.
"""

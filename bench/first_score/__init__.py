"""What the first request at a pool at zero waits for: `make bench-first-score`.

    function_local    a function pool of this machine, by the project's own command line
    parked_local      the same with a parked replica
    function_cluster  the first on a real Kubernetes of one node
    parked_cluster    the same with a parked replica

A score's seconds are those of the one who asked, by this process's clock. Its parts are the pool's own
(`status.firstScore`). What is possible is the engine's own start, measured alone in the same run.

    figures   seconds and parts of all rounds as medians; pure
    asking    one request, as it travels
    alone     an engine's start without a pool
    local     the parts on this machine
    cluster   the parts on the cluster
    aims      what the figures shall be
"""

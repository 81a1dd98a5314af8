"""What the first request at a pool at zero waits for: `make bench-first-score`.

    function_local    a function pool of this machine, by the project's own command line
    parked_local      the same with a parked replica
    function_cluster  the first on a real Kubernetes of one node
    parked_cluster    the same with a parked replica
    vllm_cluster      a pool on vLLM there, with caches kept between its pods
    warm_bursts       no wait: bursts that jobs announced, and how many found their pool warm

A score's seconds are those of the one who asked, by this process's clock. Its parts are the pool's own
(`status.firstScore`). What is possible is the engine's own start, measured alone in the same run.

    figures   seconds and parts of all rounds as medians; pure
    asking    one request, as it travels
    alone     an engine's start without a pool
    local     the parts on this machine
    cluster   the parts with functions on the cluster
    vllm, engine_log          the one with vLLM, and its log's lines as phases; the latter is pure
    warm, burst_job, bursts   the bursts, the pod that makes them, and what became of them; the last is pure
    aims      what the figures shall be
"""

"""The page in the browser: every pool with its size, load, jobs and logs, live and read-only.

    source   who knows the pools: this machine's state folders or the operator; each implements a protocol
    history  what is remembered of the last hour and, coarsely, of the last week: sizes, load, rate and latency
    score_history  the scores of each job over the same times
    view     one pool as the page shows it; a pure function of its object, its workers and its history
    snapshots  all pools once a second at most, whoever watches
    access   who may see what: a token is exchanged once for a session's secret
    manifest_text  a manifest as YAML, without what may be secret
    log_text a log without keys and without colours
    server   the routes, their bounds and their headers; `static/` is what the browser gets

`rewardpool page` serves this machine's pools, the operator those of a cluster.
"""

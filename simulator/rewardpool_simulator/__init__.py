"""A pool's size, simulated: traces of training, a fleet, and policies side by side.

    traces     what jobs do: bursts, gaps, starts and ends          trace, builtin, recording
    fleet      replicas that start, serve, drain and are lost       fleet, events
    trainers   closed loops: a late score delays the next burst     trainers, draws, announcing
    policies   a pool's autoscaling, by the operator's function     policy, pool_policy, policies
    budgets    several pools on one budget, and a fixed fleet        shared
    results    stall-seconds, GPU-seconds, changes                  run, compare

Nothing here reads a clock or the network: the same trace and seed give the same figures.
"""

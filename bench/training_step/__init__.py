"""How long a training step takes while rewards are slow: five schedules, callers of a fixed number and an elastic pool.

    protocol    the published run that this repeats, every time of it divided by one factor
    pairs       the same GPUs with a judge that compares the responses of a group
    rewards     how rollouts are judged: one call each, or the comparisons of their group
    gpu         StandInGpu, which takes the time of rollouts and updates and does nothing
    sleeper     the reward function: it takes as long as its sample says
    course      one schedule against one pool, step after step; every score is checked
    aims        what the figures shall be
    report      the tables

Real are the client, the router, the workers' processes, and the schedules (`rewardpool_train.pipeline`).
"""

"""`rewardpool doctor`: whether a machine and a cluster have what pools need.

    runner     checks side by side, each with a deadline: one that hangs or fails is a line of its own
    machine    what `rewardpool up` would find here
    cluster    what the API server says
    finding    a line, and the exit code

A check is a function that looks, and a pure one that makes lines of what it saw.
"""

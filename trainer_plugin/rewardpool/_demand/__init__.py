"""Announcements of a training job to its pool about samples that are to come, so that the pool is warm when they do.

    cadence     pure: phases and samples in, the beat learned from them, a `Demand` out
    bursts      where a trainer says nothing: rollouts by the samples that come
    announcer   a thread that keeps saying it for as long as the job lives, and never stands in training's way
    writers     where it is said: a Lease beside the pool's object, or a file in the folder of a local pool
    job         under which name, and by which process of the job
    handle      `JobDemand`, what a trainer holds: `Pool.demand` makes it

The message itself, which the operator reads, is `rewardpool_api.demand`.
"""

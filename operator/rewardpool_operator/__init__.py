"""The controller: turns RewardPool objects into running fleets of pods.

`kubernetes/` observes, and carries the plans of `rewardpool_control` out by writing objects. `rewardpool_local` carries
the same plans out with processes of one machine; `routers/` talks to the routers' worker lists for both, and `probe` to
workers.
"""

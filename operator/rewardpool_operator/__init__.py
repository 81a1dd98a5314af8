"""The operator: turns RewardPool objects into running fleets, as pods on Kubernetes or as processes on one machine.

Both ways share one loop. `snapshot` is everything observed, `decide` is a pure function from a snapshot to a `Plan`,
and what carries a plan out differs: `kubernetes/` writes objects, `local/` starts and stops processes. `router_admin`
talks to the routers' worker lists for both.
"""

"""The controller: turns RewardPool objects into running fleets of pods.

`snapshot` is everything observed, `decide` is a pure function from a snapshot to a `Plan`, and `kubernetes/` carries a
plan out by writing objects. `rewardpool_local` carries the same plans out with processes of one machine; `routers/`
talks to the routers' worker lists for both.
"""

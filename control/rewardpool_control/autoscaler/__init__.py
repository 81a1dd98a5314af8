"""Number of replicas: pure functions of observations, the policies, and the state kept in the pool's status.

signals.py       what is seen: load, workers' metrics, announcements, the claims of other pools
service_rate.py  memory: what one replica does          starts.py   memory: how long a start takes
bursts.py        memory: the beat of the load
queue_depth.py, drain_time.py, demand.py                one policy each: what is seen -> an `Proposal`
limits.py        tolerance, window, steps and bounds: the proposal -> what may be had now
budget.py        what several pools share
recommend.py     all of it in order: the one way in, for the operator and for the simulator
"""

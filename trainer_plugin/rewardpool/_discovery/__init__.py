"""Addresses of pools, now and after they moved.

find          the config's URL, the environment, a cluster, this machine: the first that has the pool
pool_sources  the latter two, which hold the RewardPool object
endpoint      what is found: URL, model, keys
resolver      looks the pool up again when there is reason to, and once a minute
"""

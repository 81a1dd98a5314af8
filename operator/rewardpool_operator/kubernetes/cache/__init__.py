"""Objects in memory: every kind that pools own, listed once and then watched.

owned.py      which kinds, and what of each is kept
reflector.py  one kind: list, then watch, for ever
store.py      all objects, by pool
objects.py    one pool's objects, as a pass sees them
"""

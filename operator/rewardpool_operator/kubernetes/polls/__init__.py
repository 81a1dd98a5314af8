"""Background questions to workers and to the API server, for which a pass does not wait.

reading.py       the machinery: ask in the background, have the answer at a later pass
probes.py        whether a worker scores, and what it says of its model
parity_check.py  what a worker makes of the golden set
downloads.py     how far a download is
pod_warnings.py  why a pod does not start, by its events
"""

"""Reconcilers of single concerns, in the order of a pass (`pool_reconciler.py`).

None of them waits for another one to succeed, and each has its own errors: what fails is a step that fails (`steps.py`)
and is tried again by a later pass.

    credentials.py    Secrets -> keys and certificate, and the next step of a change of keys
    worker_lists.py   Join, Leave -> routers; takes no API server
    owned_objects.py  the rest of a plan and what is rendered -> the API server, writing only what differs
    status.py         status and events -> the API server
"""

"""Keys and certificates of a pool: where they lie, how they change without a refused request, how a loss is noticed.

keys.py             the pool's keys, from its Secrets
rotation.py         the steps of a rotation (pure)
key_rotator.py      one pool's keys from pass to pass: asks workers and routers how far a rotation is
secret_reader.py    Secrets are read by name, since they may not be listed
secret_writer.py    and written so that no entry is lost
secret_deletion.py  how a deleted one is noticed nevertheless
tls.py              the certificate of the routers
"""

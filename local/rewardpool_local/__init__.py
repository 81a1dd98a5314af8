"""A pool on one machine: the same decisions as on Kubernetes, carried out with processes.

    up -> preflight -> Supervisor: observe -> Snapshot -> decide -> Plan -> carry out, about twice a second

Read from the bottom up: `process` is one operating-system process and everything it spawned, `supervised_process` runs
a command again and again with growing pauses, `fleet` is the workers and `router` the router, `supervisor` the loop
around them, and `commands` the commands of a person. `folder` is what other programs see: the state file that
discovery reads, keys, logs, and who supervises; `demand_files` is what training jobs write into it. `gpus` and
`gpu_shares` give every replica GPUs of its own.
"""

"""Code that runs on a machine and is no room's own: workers, pools on one machine and trainers share it.

functions        a Python function that scores, in processes of its own, within limits
frames           how such a process and its supervisor speak: length and JSON
process_stat     what a process has used and does now
descriptors      standard streams that are open, before descriptors are made for another process
process_guard    a child process ends with the process that started it
guard            what a function, and code that a policy wrote, is kept from by the kernel
http_server      an aiohttp server that callers neither hold nor make fail
file_lock        one holder of a file at a time; the kernel drops the lock with the process
listeners        who listens at a port, and ports that no other user can have
own_paths        whether a folder is this user's own
state_files      where a pool on one machine keeps its status, its demands and its locks
untrusted        texts and counts from outside, made fit to be used
bounded          the answers of workers and routers, never more of them than an honest one would say
trust            which certificates a client of a router trusts
"""

"""What runs on a machine and is no room's own: workers, pools on one machine and trainers share it.

function_runner  a Python function that scores, in a process of its own, with a deadline
process_guard    a child process ends with the process that started it
file_lock        one holder of a file at a time; the kernel drops the lock with the process
state_files      where a pool on one machine keeps its status, its demands and its locks
trust            which certificates a client of a router trusts
"""

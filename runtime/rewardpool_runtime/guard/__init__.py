"""Rights that processes give up before they run code of others: files, network, other processes, resources.

kernel       what a process asks of the kernel for that: Landlock, filters of system calls, settings
syscalls     which system calls, and the filters
function     a reward function's process: keeps all but the pool's key and what belongs to other processes
policy_code  a process for code that a policy wrote: keeps next to nothing
attempts     what neither should reach, tried

Landlock (files, TCP, abstract sockets, signals, other processes' memory) and seccomp (all other calls) work for any
user, need no right, and hold for all that the process starts.
"""

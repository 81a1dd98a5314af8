"""Runs a user's `compute_score`: where, within which limits, and what counts as a score.

outcome  what a call's arguments are, and what it becomes: a score, or why there is none
load     from `module:function` to what is called, and what of it is refused before the first sample
limits   what a call may use, and what is said of one that used more
runner   runs calls in processes that are forked from a warm parent, or async ones on one loop
parent   that parent as its supervisor sees it
zygote   that parent itself: imports the function once, and forks
serving  a forked process: serves calls by a socket
threads  runs calls in this process, for functions that share objects with it

The function is the user's code. It may raise, hang, return something that is not a score, or end its process; each of
these is an `Outcome` of the sample that caused it, and none of them harms another sample or becomes a number. A pool of
type Function runs functions by it on its workers, a mixture of rewards in the training job: a function means the same
in both.
"""

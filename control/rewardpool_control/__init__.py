"""The decisions: from what was observed of one pool to what is to be done about it, as pure functions of data.

snapshot, plan       what was observed; what is to be done
decide/              from the one to the other
autoscaler/          how many replicas
volatile_status      how soon a status that a decision made is to be written
golden_set           texts that show whether two revisions score alike
announcements        what training jobs announced, made fit to count
start_times, throughput   how long workers take to start, and what each does while it is busy

The operator carries plans out with objects of Kubernetes, `rewardpool_local` with processes of one machine, and the
simulator asks the autoscaler alone. Nothing here has a clock, a client or a thread: what is known now is an argument.
"""

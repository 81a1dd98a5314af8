"""Rollout, reward and training, overlapped: five schedules over any async reward. Imports no torch.

parts               data types, and the protocols that a user implements: rollouts, a score, a learner
schedule            the next operation, as a table and a function of the progress
staleness           fully asynchronous training: which groups may begin, and which must be trained now
dynamic_sampling    replacement of groups without a gradient, in rounds
group_buffer        groups from their begin to their mini-batch
group_tracker       counts of the groups of a run, by outcome
state               the outstanding groups as JSON, for checkpoints
rollout_driver      sampling of groups, and submission of rollouts for their scores
minibatches         assembly of the next mini-batch
engine              `Pipeline`, which executes all of it
"""

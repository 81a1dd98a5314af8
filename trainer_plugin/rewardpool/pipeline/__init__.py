"""Rollout, reward and training, overlapped: five schedules over any async reward. Imports no torch.

parts      what is handed around, and what a user brings: rollouts, a score, a learner
schedule   which operation comes next, as a table and a function of the progress
staleness  fully asynchronous training: which group may begin, and which must be trained now
board      groups from their begin to their mini-batch
state      what is outstanding, as JSON, for checkpoints
engine     `Pipeline`, which carries it out
"""

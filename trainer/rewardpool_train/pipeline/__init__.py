"""Rollout, reward and training, overlapped: five schedules over any async reward. Imports no torch.

parts               what is handed around, and what a user brings: rollouts, a score, a learner
schedule            which operation comes next, as a table and a function of the progress
staleness           fully asynchronous training: which group may begin, and which must be trained now
dynamic_sampling    which groups teach nothing and are replaced, in rounds
group_buffer        groups from their begin to their mini-batch
group_tracker       which groups were begun, and what became of them
state               what is outstanding, as JSON, for checkpoints
rollout_driver      the rollout side: groups go to whoever samples, rollouts to their scores
minibatches         the way to the next mini-batch
engine              `Pipeline`, which carries it out
"""

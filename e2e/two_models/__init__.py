"""A pool that changes from model a to model b, and back, while groups are rated: `make e2e-models`, five minutes.

checkpoints  two tiny reward models whose tokenizers differ, and what each says of every episode
rating       the pod that rates groups all the while, by one open reward
manifests    the pool, and the pod
story        a rollout, a rollback, and a worker that is killed in the middle of a rollout
findings     what the ratings show: scores by the wrong tokenizer, groups that two revisions rated
__main__     a cluster of its own, `.rewardpool/e2e/models.json`
"""

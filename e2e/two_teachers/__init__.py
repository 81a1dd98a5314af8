"""Two teachers and a judge that one job announces, from zero and back: `make e2e-teachers`, ten minutes.

checkpoints  two tiny language models, and what transformers says of every sequence
job          the job's pod: each sequence to its teacher, each response to the judge, and one teacher by its gateway too
manifests    the three pools, and the pod
story        nothing is there, all three are, nothing is
findings     what the answers show: some that are missing, failed or wrong
__main__     a cluster of its own, `.rewardpool/e2e/teachers.json`
"""

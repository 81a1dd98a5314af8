"""GRPO with an FSDP2 actor: from a prompt to a better policy in short modules.

    data        prompts, rollouts, and the episode that a rollout is scored as
    rollout     responses from vLLM or an unsharded copy of the policy; each is returned as soon as it ends
    scoring     from a response to its score, while others are still being sampled
    grpo        the loss; `rewardpool_train.advantages` and `.objective` are in plain Python
    tokens      log-probabilities of rollouts, padded (`packing`: or packed into rows)
    loading     the policy's weights, from its folder to rank 0's memory
    fsdp        the sharded policy, its optimiser, and the way of its weights to the rollout copy
    checkpoint  state of a job, written to and read from a folder
    resume      where a job resumes, also on another number of ranks
    learner     all of these as a pipeline sees them: awaited, with the blocking work on one thread
    records     the figures of a step, over all ranks
    trainer     one step after another, by the schedule of the config (`rewardpool_train.pipeline`)

`ranks` has the collectives between the processes of one job. `rewardpool_train` is the command that runs all of it.
"""

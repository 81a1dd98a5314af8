"""GRPO with an FSDP2 actor, written to be read: from a prompt to a better policy in short modules.

    data        prompts, rollouts, and the sample that a rollout is scored as
    rollout     responses from an unsharded copy of the policy; each is handed over the moment it ends
    scoring     from a response to its score, while the rest is still being written
    groups      group-normalised advantages, in plain Python
    objective   GRPO's variants as independent choices, in plain Python
    grpo        the loss
    tokens      log-probabilities of rollouts, padded (`packing`: or packed into rows)
    loading     the policy's weights, from its folder to rank 0's memory
    fsdp        the sharded policy, its optimiser, and the way of its weights to the rollout copy
    checkpoint  what a job needs to go on after it was stopped
    resume      where it then goes on, also on another number of ranks
    learner     all of these as a pipeline sees them: awaited, with the blocking work on one thread
    records     what a step came to, over all ranks
    trainer     one step after another, by the schedule that the config names (`rewardpool_train.pipeline`)

`ranks` holds what the processes of one job say to each other. `rewardpool_train` is the command that runs it all.
"""

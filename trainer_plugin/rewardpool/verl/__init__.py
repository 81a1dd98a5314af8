"""verl scores by a pool: that `rewardpool` is installed beside it is all that verl has to know of it.

    reward.reward_manager.name=rewardpool +reward.pool=rl/skywork

    manager         the reward manager that verl finds by its entry point group `verl.plugins`
    reward          the same as a custom reward function, for who wants to keep another reward manager
    agent_loop      the same in verl's agent loop worker, without a reward worker between
    advantages      GRPO with a reward for each step, as an advantage estimator of verl's
    response_scorer  one response, scored; what both of them do
    settings        pure: what a verl config says about the pool, checked
    rollout         pure: from a row of verl's DataProto to an Episode
    result          pure: from a Rating to what verl takes from a reward manager
    announced       an open reward, and bursts that tell its pools of rollouts, of which verl says nothing
    ray_claims      which revision scores each group, kept by an actor for all reward workers of a job
    function_pool   a pool for reward functions of the user's own, which send requests themselves
    local_proxy     the address to which they send them

verl itself is imported in `manager`, `agent_loop` and `advantages` alone.
"""

# What all the examples here share: the model, the data, and the pool that scores. Sourced by them; not run by itself.
# GSM8K as verl's examples/data_preprocess/gsm8k.py writes it; every value can be set from outside.

MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
DATA=${DATA:-$HOME/data/gsm8k}
POOL=${POOL:-rl/skywork}

COMMON=(
    algorithm.adv_estimator=grpo
    algorithm.use_kl_in_reward=False
    data.train_files="$DATA/train.parquet"
    data.val_files="$DATA/test.parquet"
    data.max_prompt_length=512
    data.max_response_length=1024
    actor_rollout_ref.model.path="$MODEL"
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.ppo_mini_batch_size=256
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6
    # Scores come from the pool, and are asked for in the agent loop's own process.
    reward.reward_manager.name=rewardpool
    +reward.pool="$POOL"
    actor_rollout_ref.rollout.agent.default_agent_loop=rewardpool
    reward.num_workers=1
)

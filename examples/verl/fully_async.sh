#!/usr/bin/env bash
# Rollout on 4 GPUs and training on 4, apart, with a bound on staleness: whatever is scored is trained on.
set -euo pipefail
. "$(dirname "$0")/common.sh"

OVERRIDES=(
    "${COMMON[@]}"
    async_training.staleness_threshold=0.5
    async_training.trigger_parameter_sync_step=4
    async_training.require_batches=1
    async_training.partial_rollout=True
    data.train_batch_size=0
    data.gen_batch_size=1
    data.return_raw_chat=True
    actor_rollout_ref.hybrid_engine=False
    actor_rollout_ref.rollout.n=5
    rollout.nnodes=1
    rollout.n_gpus_per_node=4
    rollout.total_rollout_steps=107520 # 105 steps of 1024 prompts
    trainer.nnodes=1
    trainer.n_gpus_per_node=4
)

exec ${PYTHON:-python} -m verl.experimental.fully_async_policy.fully_async_main "${OVERRIDES[@]}" "$@"

#!/usr/bin/env bash
# Rollout on 4 GPUs and training on 4, a mini-batch as soon as its groups are scored; weights go over after every 4.
set -euo pipefail
. "$(dirname "$0")/common.sh"

OVERRIDES=(
    "${COMMON[@]}"
    trainer.v1.trainer_mode=separate_async
    trainer.v1.separate_async.parameter_sync_step=4
    data.train_batch_size=1024 # parameter_sync_step mini-batches
    actor_rollout_ref.hybrid_engine=False
    actor_rollout_ref.rollout.n=5
    actor_rollout_ref.rollout.nnodes=1
    actor_rollout_ref.rollout.n_gpus_per_node=4
    actor_rollout_ref.rollout.checkpoint_engine.backend=nccl
    trainer.nnodes=1
    trainer.n_gpus_per_node=4
)

exec ${PYTHON:-python} -m verl.trainer.main_ppo "${OVERRIDES[@]}" "$@"

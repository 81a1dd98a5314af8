#!/usr/bin/env bash
# Rollout, then training, on the same 8 GPUs. Rewards stream while others are still written; the last ones are waited for.
set -euo pipefail
. "$(dirname "$0")/common.sh"

OVERRIDES=(
    "${COMMON[@]}"
    trainer.v1.trainer_mode=sync
    data.train_batch_size=1024
    actor_rollout_ref.rollout.n=5
    trainer.nnodes=1
    trainer.n_gpus_per_node=8
)

exec ${PYTHON:-python} -m verl.trainer.main_ppo "${OVERRIDES[@]}" "$@"

#!/usr/bin/env bash
# Rollout on 4 GPUs, one step ahead of training on 4: a step's rewards arrive while the step before it trains.
set -euo pipefail
. "$(dirname "$0")/common.sh"

OVERRIDES=(
    "${COMMON[@]}"
    'hydra.searchpath=[pkg://verl.trainer.config]' # verl's own default is relative to a checkout of it
    data.train_batch_size=1024
    actor_rollout_ref.hybrid_engine=False
    actor_rollout_ref.rollout.n=5
    rollout.nnodes=1
    rollout.n_gpus_per_node=4
    trainer.nnodes=1
    trainer.n_gpus_per_node=4
)

exec ${PYTHON:-python} -m verl.experimental.one_step_off_policy.main_ppo "${OVERRIDES[@]}" "$@"

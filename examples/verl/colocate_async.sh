#!/usr/bin/env bash
# As sync, but the next batch is begun before the last one is trained on: what is still written or scored then goes on later.
set -euo pipefail
. "$(dirname "$0")/common.sh"

OVERRIDES=(
    "${COMMON[@]}"
    trainer.v1.trainer_mode=colocate_async
    trainer.v1.colocate_async.num_warmup_batches=1
    data.train_batch_size=1024
    actor_rollout_ref.rollout.n=5
    trainer.nnodes=1
    trainer.n_gpus_per_node=8
)

exec ${PYTHON:-python} -m verl.trainer.main_ppo "${OVERRIDES[@]}" "$@"

"""A pool that is at zero until somebody wants it: `python -m autoscaling`, and part of `make e2e`.

    model      vLLM: 0 → 1 by a first request, 1 → 3 under load, → 0 when nobody asks
    training   a job that announces its bursts: the fleet is gone between them and there before each; then `kill -9`
    play       both, one after the other, and `.rewardpool/e2e/autoscaling.json`

    course     the sizes that a pool had, and what they were around each burst
    reference  texts for the reward model, with the scores that transformers gives them
    callers    a pod that asks, some requests at a time
    job        a pod that trains as far as a pool can see: bursts, and gaps between them
    manifests  the pools and the pods

Every sample's score is compared with the one that it must have. A story fails when something does not come true before
its deadline; samples that failed or got another's score are counted, and fail the run.
"""

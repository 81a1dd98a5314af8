"""The gateway: a pool behind the HTTP protocols of trainers that can only POST.

    wire     pure: what OpenRLHF and slime send, and what they expect back
    run_code pure: the same of SandboxFusion's clients
    logprobs pure: the same of vLLM's clients, who ask for log-probabilities
    opened   what the pool's type makes of it: a reward, or a teacher
    server   routes, key, bounds, failures, health and metrics
    running  from the start to SIGTERM

Those trainers try again after any HTTP error and give up after some, so a failure is always an error here, never a
number. A training job that can call Python needs no gateway: `rewardpool.openrlhf` and `rewardpool.slime`.
"""

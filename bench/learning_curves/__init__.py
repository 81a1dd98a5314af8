"""Whether a schedule learns as well as `sync`: the real actor, a pool whose answers come in another order than asked.

    judge     the reward function: the share of vowels, after a delay of the text's own
    jobs      one training job: a config, `python -m rewardpool_train`, its metrics
    verdict   final rewards of several seeds, beside those of `sync`
    picture   the curves

A job is what a user starts; nothing in it is a stand-in but the reward model, which is a function.
"""

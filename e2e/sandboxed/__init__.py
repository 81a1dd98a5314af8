"""Hostile code in restricted pods, and a function that is edited while a job asks: `make e2e-sandbox`, ten minutes.

samples    what the jobs ask: the hostile code of the tests, beside right and wrong programs, and the verdicts on both
reward     the pool's function, which runs them in the sandbox; its code is a ConfigMap of kustomize's
job        asks, as a pod: it has the samples from a file, and writes down what became of each
manifests  the objects
story      the steps: hostile code, an edit of the function, nodes that lack Landlock, functions by a wheel and by git
__main__   a cluster of its own, `.rewardpool/e2e/sandbox.json`
"""

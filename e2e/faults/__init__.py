"""What breaks in a cluster, broken on purpose under steady load: `python -m faults`, and part of `make e2e`.

    traffic    a pod that scores samples at a fixed rate with the trainer's client and checks every score
    reward     the function behind the pool: a fixed service time, and a score that is known for every text
    tally      what became of the samples of a window of time
    stage      the pool under load, and the means to look at it and to change it
    workers, routers, rollouts, keys, nodes, objects, partial, operators
               the faults: a function each, its promise in the first line of its docstring
    play       all of them one after the other, a table, `.rewardpool/e2e/faults.json`

A fault passes when what it waits for comes true before its deadline and no sample due in the meantime failed, got
lost or got another score than its own.
"""

"""Everything that can break, broken for minutes, singly and two at a time, while a job trains: `make soak`.

    plan       seed -> which faults begin when, as data
    trainer    the training job, and a witness of what it asks and gets
    faults     how each kind of fault is done, and undone
    changes    what a user does to the pool meanwhile
    stage      pool, traffic and training job on the cluster
    watch      what the processes take of memory meanwhile
    ledger     every sample, compared with what it must be
    report     the figures and the picture
    play       all of it, one after the other

The pool is Python functions, for the sake of speed, and the training job the quick start's, with its policy of 0.1
million weights; client, router, operator, trainer and everything below them are the real ones.
"""

"""The controller's loop, on a real cluster under steady load: `make e2e-control-loop`, twenty minutes.

election    the operators' requests for their Lease are answered by pages of HTML
namespaces  fifteen watched namespaces
rollouts    those that have no room, no pods or no way to their workers: each comes to an end
sharing     an elastic pool of a job that announces and of one that does not
__main__    all of them one after the other, a table, `.rewardpool/e2e/control-loop.json`

Each is written like those of `faults`, with its stage, its traffic and its means to break things, and passes as they
do: what it waits for comes true before its deadline, and no sample due meanwhile failed or got another's score.
"""

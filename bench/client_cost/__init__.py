"""What a reward call costs: the client beside a bare session and verl's own call; alone, inside verl, and with a death.

    stage        4 stand-in workers behind a real sglang-router and verl's real NaiveRouter
    http_ways    the same samples sent in five ways           -> samples/s and latencies
    verl_ways    the same inside verl's reward loop on Ray    -> the same
    kill         a worker killed with -9 in their midst       -> the slowest sample
    figures      pure: medians, spread, ratios round by round
    aims         pure: what they shall be, and whether they are

Workers cost next to nothing, so that what is measured is the road to them. All ways of one setting take turns, round by
round: only ratios of one run mean anything, since workers, routers and clients share the machine's cores.
"""

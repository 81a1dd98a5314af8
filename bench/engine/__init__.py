"""What the way through router and client costs beside a real engine's own port, and what the function engine costs.

    engines      real vLLM and SGLang, one replica and two, scored directly, through the router, and by the client
    functions    the function engine and a bare app on uvicorn, with the same function
    plain_app    that app; rewards: that function
    turns        all ways once in every round, with the CPU time that each of them took
    starts       an engine's start, divided by what its log says
    aims         pure: what the figures shall be, and whether they are
    tables       the tables

All ways of a setting take turns, on the same texts: only ratios of one run mean anything, since engines, router and
client share the machine's cores.
"""

"""The page in the browser for the pools of a cluster: all but `offer` runs in the front, without the operator's rights.

    offer       what the operator tells of its pools, from what its watches keep
    api_server  the API server, asked with the viewers' own tokens alone
    reviews     what it says of a token's user and rights, remembered for some seconds
    access      a token becomes a viewer, who sees what that token may read and nothing else
    workers     a pod as the page shows it; pure
    routers     what the routers count, asked only while somebody watches
    logs        the end of a pod's log
    source      all of it as the page asks for it

Nothing here is a part of a pass: a page that fails costs no pool anything.
"""

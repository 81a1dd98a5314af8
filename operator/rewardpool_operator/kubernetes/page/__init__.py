"""The page in the browser for the pools of a cluster, served by every operator from what its watches keep.

    reviews  what the API server says of a token and of its user's rights, remembered for some seconds
    access   a token becomes a viewer, who sees what that token may read and nothing else
    workers  a pod as the page shows it; pure
    routers  what the routers count, asked only while somebody watches
    logs     the end of a pod's log, read with the viewer's own token
    source   all of it as the page asks for it

Nothing here is a part of a pass: a page that fails costs no pool anything.
"""

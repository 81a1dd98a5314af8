"""All that speaks to routers: sglang-router and smg, which have one worker list and two ways to count.

admin                the worker list: read, joined and left, and what a router says of itself
metrics              a router's page of metrics, and the error where a figure of it is missing
flags                a router's command line
program, programs    what differs between routers, and which there are
sglang_router, smg   one router each: its flags, and the requests that wait there for a worker
"""

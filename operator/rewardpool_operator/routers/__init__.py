"""All that speaks to routers: sglang-router and smg, which have one worker list and two ways to count.

admin    the worker list: read, joined and left, and what a router says of itself
metrics  a router's page of metrics, and the error where a figure of it is missing
backlog  requests that wait at a router for a worker
"""

"""Requests to programs of this machine and its node, past the proxies that the environment names."""

from urllib.request import BaseHandler, OpenerDirector, ProxyHandler, build_opener


def opener(*handlers: BaseHandler) -> OpenerDirector:
    """Return an opener that uses no proxy."""
    return build_opener(ProxyHandler({}), *handlers)

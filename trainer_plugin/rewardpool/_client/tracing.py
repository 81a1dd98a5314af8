"""The caller's trace goes on at router and worker.

`traceparent` is sent where OpenTelemetry is installed and a span is current; both routers hand that header on.
"""

import importlib
from collections.abc import Callable
from functools import lru_cache

Inject = Callable[[dict[str, str]], None]


@lru_cache(maxsize=1)
def _inject() -> Inject | None:
    try:
        inject: Inject = importlib.import_module("opentelemetry.propagate").inject
    except ImportError:
        return None
    return inject


def trace_headers() -> str:
    """The header lines that OpenTelemetry's propagator wants sent with a request made in the current context."""
    inject = _inject()
    if inject is None:
        return ""
    headers: dict[str, str] = {}
    inject(headers)
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())

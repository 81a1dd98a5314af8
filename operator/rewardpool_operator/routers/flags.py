"""The command line of a router, and why each flag is there.

With these flags 20,000 requests at concurrency 150 were all answered, each with one answer, while workers were killed,
removed and added again and for some seconds none was left. The routers' defaults lose requests in the same run. Flags
of one router alone are in its module.
"""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from rewardpool_api.pool import RouterFlavor
from rewardpool_operator.routers.programs import PROGRAMS

MAX_BODY_BYTES: Final = 16 << 20


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """Certificate and key of a router that serves HTTPS."""

    certificate: PurePath
    key: PurePath


def router_flags(
    *,
    flavor: RouterFlavor,
    host: str,
    port: int,
    metrics_host: str,
    metrics_port: int,
    request_timeout_seconds: int,
    shutdown_grace_seconds: int,
    tls: TlsFiles | None = None,
) -> tuple[str, ...]:
    """Build the router's arguments; a pure function.

    Args:
        host: address of the data plane and of the worker list; an IPv6 one without brackets.
        metrics_host: address of the Prometheus endpoint, which takes no key.
        request_timeout_seconds: longest one attempt at a worker may take; longer than the slowest real request, because
            a request that runs into it is started again elsewhere.
        shutdown_grace_seconds: how long the router waits on SIGTERM for what is in flight.
        tls: serve HTTPS with these files; None for HTTP. The Prometheus endpoint is HTTP in any case.

    Returns:
        Flags and their values, ready for argv. No key among them: see `router_launcher`.
    """
    program = PROGRAMS[flavor]
    flags: dict[str, str | int | float] = {
        "--host": program.ipv6_host.format(host) if ":" in host else host,
        "--port": port,
        "--prometheus-host": metrics_host,
        "--prometheus-port": metrics_port,
        # At info the router writes hundreds of megabytes in half a minute of load.
        "--log-level": "warn",
        # In sglang-router cache_aware is the only policy that counts what is in flight per worker; with these two
        # thresholds it always balances, so it is least-in-flight. Its defaults send a shared prompt prefix to one
        # worker only.
        "--policy": "cache_aware",
        "--balance-abs-threshold": 0,
        "--balance-rel-threshold": 1.0,
        # The tree of prefixes that cache_aware keeps grows by gigabytes on unique texts unless it is bounded.
        "--max-tree-size": 2_000_000,
        "--eviction-interval-secs": 5,
        # Ten adds of addresses that do not answer block all other adds and removals until this has passed.
        "--worker-startup-timeout-secs": 15,
        # Out of rotation 3 to 4 s after a death, where the defaults take minutes; back after one success.
        "--health-check-interval-secs": 2,
        "--health-check-timeout-secs": 2,
        "--health-failure-threshold": 2,
        "--health-success-threshold": 1,
        # The breaker covers the seconds until the health check. Any status but 2xx counts against it, so it opens late,
        # closes at the first success, and is tried again after 3 s. Without one, a dead worker, which has nothing in
        # flight, attracts everything.
        "--cb-failure-threshold": 20,
        "--cb-success-threshold": 1,
        "--cb-timeout-duration-secs": 3,
        # Retries are the only queue that works in sglang-router (the queue of its own answers 408): 80 of them, 0.5 s
        # apart at most, carry a request over half a minute without any worker. What waits notices a new worker at its
        # next retry, and the operator what waits at the first. A retry takes the router 0.03 ms of a processor. smg
        # refuses what has no worker.
        "--retry-max-retries": 80,
        "--retry-initial-backoff-ms": 50,
        "--retry-max-backoff-ms": 500,
        # Of one request, as workers by default. Larger ones are refused before they are read, also from callers without
        # a key; the default is 512 MiB.
        "--max-payload-size": MAX_BODY_BYTES,
        # Conversations that holders of the key post are kept in memory otherwise, for ever by sglang-router.
        "--history-backend": "none",
        # A worker that hangs holds its requests until this; the default is half an hour.
        "--request-timeout-secs": request_timeout_seconds,
        "--shutdown-grace-period-secs": shutdown_grace_seconds,
    }
    if tls is not None:
        flags |= {"--tls-cert-path": str(tls.certificate), "--tls-key-path": str(tls.key)}
    return tuple(str(part) for flag in flags.items() for part in flag) + program.flags

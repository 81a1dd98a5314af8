"""Signature of an answer: what each repeats of its request, so that a trainer notices one to another request."""

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from rewardpool_api.contract import OTHER_REVISION, OTHER_WIRE, WANTED_REVISION, WIRE, WIRE_VERSION, other_wire
from rewardpool_api.names import ENV_WORKER

MAX_REQUEST_ID = 256  # bytes


def refused_for_another(request_id: bytes | None, revision: str) -> dict[str, Any] | None:
    """Return the answer to a request that this worker is not to read.

    Args:
        revision: of this worker; empty where it has none.

    Returns:
        None for a request of this version of the contract, for this revision or for any.
    """
    head, _, wanted = (request_id or b"").partition(WANTED_REVISION.encode())
    _, _, spoken = head.partition(WIRE.encode())
    if (wire := spoken or b"1") != str(WIRE_VERSION).encode():
        return _refusal(OTHER_WIRE, other_wire(trainer=wire.decode("latin-1"), worker=WIRE_VERSION))
    if wanted and revision and wanted != revision.encode():
        return _refusal(OTHER_REVISION, f"this worker is of revision {revision}")
    return None


def _refusal(code: str, message: str) -> dict[str, Any]:
    return {"object": "list", "data": [], "error": {"code": code, "message": message, "fault": "infra"}}


def worker_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the worker that this process is."""
    return environ.get(ENV_WORKER) or socket.gethostname()


def echo(
    request_id: bytes | None, *, revision: str, worker: dict[str, Any], tokenizer: str | None = None
) -> dict[str, Any]:
    """Return the fields by which an answer says whose it is."""
    repeated = None if request_id is None else request_id[:MAX_REQUEST_ID].decode("latin-1")
    wire = None if WIRE_VERSION == 1 else WIRE_VERSION
    said = {
        "request_id": repeated,
        "revision": revision or None,
        "tokenizer": tokenizer,
        "worker": worker,
        "wire": wire,
    }
    return {name: value for name, value in said.items() if value is not None}


def worker_fields(name: str, *, seconds: float, ready_seconds: float) -> dict[str, Any]:
    """Return what an answer says of the worker: its name, its work on the request, and for how long it is ready."""
    return {"name": name, "seconds": round(seconds, 6), "ready_seconds": round(ready_seconds, 3)}


def with_echo(body: bytes, said: dict[str, Any]) -> bytes:
    """Add those fields to an engine's answer; one that is not a JSON object stays as it is."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return body
    return json.dumps({**answer, **said}).encode() if isinstance(answer, dict) else body

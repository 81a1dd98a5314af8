"""Whose answer it is: what each answer repeats of its request, so that a trainer notices one to another request."""

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from rewardpool_api.contract import OTHER_REVISION, WANTED_REVISION
from rewardpool_api.names import ENV_WORKER

MAX_REQUEST_ID = 256
"""Bytes of a request's id that are repeated."""


def other_revision(revision: str) -> dict[str, Any]:
    """Return the answer of a worker of this revision to a request for another one."""
    error = {"code": OTHER_REVISION, "message": f"this worker is of revision {revision}", "fault": "infra"}
    return {"object": "list", "data": [], "error": error}


def worker_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the worker that this process is."""
    return environ.get(ENV_WORKER) or socket.gethostname()


def echo(
    request_id: bytes | None, *, revision: str, worker: dict[str, Any], tokenizer: str | None = None
) -> dict[str, Any]:
    """Return the fields by which an answer says whose it is."""
    repeated = None if request_id is None else request_id[:MAX_REQUEST_ID].decode("latin-1")
    said = {"request_id": repeated, "revision": revision or None, "tokenizer": tokenizer, "worker": worker}
    return {name: value for name, value in said.items() if value is not None}


def worker_fields(name: str, *, seconds: float, ready_seconds: float) -> dict[str, Any]:
    """Return what an answer says of the worker: its name, its work on the request, and for how long it is ready."""
    return {"name": name, "seconds": round(seconds, 6), "ready_seconds": round(ready_seconds, 3)}


def is_for_another(request_id: bytes | None, revision: str) -> bool:
    """Return whether a request is for workers of another revision than this one."""
    _, _, wanted = (request_id or b"").partition(WANTED_REVISION.encode())
    return bool(wanted and revision) and wanted != revision.encode()


def with_echo(body: bytes, said: dict[str, Any]) -> bytes:
    """Add those fields to an engine's answer; one that is not a JSON object stays as it is."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return body
    return json.dumps({**answer, **said}).encode() if isinstance(answer, dict) else body

"""Counting what the operator writes, in the one place where it cannot be overlooked: the API server's audit log."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

WRITES: Final = ("create", "update", "patch", "delete", "deletecollection")


class Audit:
    """The log of every write of one user.

    Args:
        folder: for policy and log.
        user: name of the user as the API server knows it.
    """

    def __init__(self, folder: Path, *, user: str) -> None:
        self._log = folder / "audit.jsonl"
        self._policy = folder / "audit-policy.yaml"
        self._policy.write_text(yaml.safe_dump(policy(user)))
        self._position = 0

    @property
    def flags(self) -> Sequence[str]:
        """Of kube-apiserver. An answer waits for its line, so a write that was answered is in the log."""
        return (
            f"--audit-policy-file={self._policy}",
            f"--audit-log-path={self._log}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=1024",
        )

    def writes(self) -> Counter[str]:
        """How often the user wrote since the last call, by `verb resource`."""
        if not self._log.exists():
            return Counter()
        with self._log.open() as log:
            log.seek(self._position)
            # The last line may be half written: it is read the next time.
            lines = [line for line in log if line.endswith("\n")]
        self._position += sum(map(len, lines))
        return counted(map(json.loads, lines))


def counted(events: Iterable[dict[str, Any]]) -> Counter[str]:
    """The number of events by `verb resource`; a subresource is behind a slash."""
    return Counter(f"{event['verb']} {_resource(event.get('objectRef', {}))}" for event in events)


def policy(user: str) -> dict[str, Any]:
    """An audit policy: a line of metadata for each write of the user, and nothing else."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [user], "verbs": list(WRITES)}, {"level": "None"}],
    }


def _resource(reference: dict[str, str]) -> str:
    return "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))

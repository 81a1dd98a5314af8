"""What a real API server would answer to an object that is made; nothing is stored. A hundredth of a kubectl's work."""

import json
from typing import Any

import urllib3

from cluster.control_plane import ControlPlane


class DryRun:
    """Asks over connections that are kept open, as the administrator; from several threads, if need be."""

    def __init__(self, plane: ControlPlane, *, at_a_time: int = 1) -> None:
        self._connections = urllib3.PoolManager(ca_certs=str(plane.authority.certificate), maxsize=at_a_time)
        self._url = plane.url
        self._headers = {"Authorization": f"Bearer {plane.admin_token}", "Content-Type": "application/json"}

    def refusal(self, manifest: dict[str, Any], plural: str = "rewardpools") -> str | None:
        """Why the object would be refused, in the API server's words; None where it would be made."""
        group = "api" if manifest["apiVersion"] == "v1" else "apis"
        path = f"/{group}/{manifest['apiVersion']}/namespaces/{manifest['metadata']['namespace']}/{plural}?dryRun=All"
        body = json.dumps(manifest).encode()
        answer = self._connections.request("POST", self._url + path, body=body, headers=self._headers, timeout=30)
        if answer.status == 201:
            return None
        assert answer.status in (400, 403, 422), f"{answer.status}: {answer.data!r}"
        return str(answer.json()["message"])

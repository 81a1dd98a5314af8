"""Kueue's own controller, as a process beside a control plane: its CRDs, its webhooks, and its queues.

Of its webhooks and integrations those for pods, Deployments and Jobs are on; their kinds are in every cluster.
"""

import base64
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from cluster import binaries
from cluster.control_plane import ControlPlane
from cluster.kubectl import wait_for_crd
from cluster.processes import Daemon, free_port, kill, output_of, wait_until
from cluster.progress import Say, timed_lines

START_SECONDS: Final = 120.0
INTEGRATIONS: Final = ("batch/job", "deployment", "pod")
_WEBHOOKS: Final = ("-kueue-x-k8s-io-v1beta2-", "-batch-v1-job", "-apps-v1-deployment", "--v1-pod")
"""What the paths of those webhooks have."""
_CERTIFICATES: Final = "/etc/kueue/metrics/certs"
"""Where Kueue wants those of its metrics, whatever its configuration says."""


class Kueue:
    """A context manager: it is there when a queue can be made.

    Args:
        plane: a control plane that runs, with its controllers.
        say: gets what happens; lines on standard error by default.
    """

    def __init__(self, plane: ControlPlane, *, say: Say | None = None) -> None:
        self._plane = plane
        self._say = say or timed_lines()
        self._folder = plane.directory / "kueue"
        self._port = free_port()
        self._daemon: Daemon | None = None

    def __enter__(self) -> Self:
        program = binaries.ensure("kueue", say=self._say)["kueue"]
        sources = Path(
            output_of("go", "-C", binaries.GOMOD / "kueue", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").strip()
        )
        components = sources / "config" / "components"
        self._folder.mkdir()
        self._make_crds(components / "crd" / "bases")
        try:
            self._daemon = Daemon("kueue", self._command(program), log=self._folder / "log")
            wait_until(
                lambda: "Serving webhook server" in self._daemon_log(),
                what="Kueue serves its webhooks",
                deadline_seconds=START_SECONDS,
                daemons=[self._daemon],
            )
            self._make_webhooks(components / "webhook" / "manifests.yaml")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _make_crds(self, folder: Path) -> None:
        # One version is used, so none is ever converted to another.
        self._plane.kubectl("apply", "--server-side", "-f", str(folder), deadline_seconds=120)
        for crd in self._plane.kubectl("get", "crd", "-o", "name").split():
            wait_for_crd(self._plane.kubectl, crd.partition("/")[2])

    def _make_webhooks(self, file: Path) -> None:
        trust = base64.b64encode(self._plane.authority.certificate.read_bytes()).decode()
        for document in yaml.safe_load_all(file.read_text()):
            document["webhooks"] = list(self._at_home(document["webhooks"], trust))
            self._plane.kubectl("create", "-f", "-", input=json.dumps(document))

    def _at_home(self, webhooks: list[dict[str, Any]], trust: str) -> Iterator[dict[str, Any]]:
        for webhook in webhooks:
            path = webhook["clientConfig"]["service"]["path"]
            if any(part in path for part in _WEBHOOKS):
                yield {**webhook, "clientConfig": {"url": f"https://127.0.0.1:{self._port}{path}", "caBundle": trust}}

    def _command(self, program: Path) -> list[str | Path]:
        certificate, key = self._plane.authority.issue("kueue", common_name="kueue", hosts=["127.0.0.1"])
        certificates = self._folder / "certificates"
        certificates.mkdir()
        for name, file in (("tls.crt", certificate), ("tls.key", key)):
            (certificates / name).write_bytes(file.read_bytes())
        settings = self._folder / "settings.yaml"
        settings.write_text(json.dumps(self._settings(certificates)))
        run = [program, f"--config={settings}", f"--kubeconfig={self._plane.kubeconfig}", "--zap-log-level=2"]
        # In a /etc of its own, for no other program to find there what is for this one.
        made = Path(_CERTIFICATES).parent
        steps = (
            f"mount -t tmpfs kueue /etc && mkdir -p {made} && ln -s {shlex.quote(str(certificates))} {_CERTIFICATES}",
            f"exec {shlex.join(map(str, run))}",
        )
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", *user, "--mount", "--", "sh", "-c", " && ".join(steps)]

    def _settings(self, certificates: Path) -> dict[str, Any]:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._port, "certDir": str(certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": list(INTEGRATIONS)},
            "featureGates": {"VisibilityOnDemand": False},
        }

    def _daemon_log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def _stop(self) -> None:
        daemon, self._daemon = self._daemon, None
        kill([daemon] if daemon else [])

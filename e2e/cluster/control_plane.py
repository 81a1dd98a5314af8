"""A real Kubernetes control plane in one folder: etcd and kube-apiserver, and the controllers if wanted.

Up in a few seconds, without privileges, any number side by side. This is what the operator's tests talk to: real
validation, real server-side apply, real RBAC, real garbage collection; only pods do not run until a node joins
(`cluster.node`). Leaving the context ends the programs it started, and the kernel does when the test run dies.

    with ControlPlane(tmp_path, manifests=[crd]) as plane:
        plane.kubectl("get", "namespaces")
"""

import base64
import ipaddress
import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

from cluster import binaries, direct
from cluster.certificates import Authority, make_key
from cluster.kubectl import kubectl, wait_for_crd, write_kubeconfig
from cluster.processes import ClusterError, Daemon, free_port, kill, output_of, wait_until
from cluster.progress import Say, timed_lines

START_SECONDS = 180.0
"""Deadline for each part to come up; idle on two cores all of it takes three to five seconds."""

_ISSUER = "https://kubernetes.default.svc"
_COMPONENTS = ("kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns")

_FRONT_PROXY = "front-proxy-client"
"""Name by which the API server shows itself to extension API servers, such as those that serve metrics."""

_FAST_CLIENT = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""The defaults (20 and 30 for the controllers) are the limit of everything that creates more than a few pods."""


class ControlPlane:
    """etcd and kube-apiserver (and, by default, kube-controller-manager) as child processes.

    Args:
        directory: empty or new folder for keys, data and logs; the caller removes it.
        controllers: run kube-controller-manager: Deployments make pods, owners take what they own with them, namespaces
            get their ServiceAccount. Without it pods are accepted without a ServiceAccount, as in envtest.
        scheduler: run kube-scheduler.
        manifests: files or folders applied before the controllers start. Name CRDs here: the garbage collector looks
            for new kinds only every 30 seconds, so what an object of a kind added later owns may outlive it that long.
        address: where the API server listens; pods reach it only at an address that is not loopback.
        service_network: where Services get their addresses.
        nodes: names of the nodes that will join; each gets a token in `node_tokens`.
        flags: further flags of a program, by its name; they win over those given here.
        say: told what happens; lines on standard error by default.

    Attributes:
        kubeconfig: file with the administrator's token (mode 0600).
        url: of the API server.
        admin_token: bearer token of a member of system:masters.
    """

    def __init__(
        self,
        directory: Path,
        *,
        controllers: bool = True,
        scheduler: bool = False,
        manifests: Sequence[Path] = (),
        address: str = "127.0.0.1",
        service_network: str = "10.96.0.0/16",
        nodes: Sequence[str] = (),
        flags: Mapping[str, Sequence[str]] | None = None,
        say: Say | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.address = address
        self.service_network = ipaddress.IPv4Network(service_network)
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self.admin_token = secrets.token_urlsafe(32)
        self.node_tokens = {name: secrets.token_urlsafe(32) for name in nodes}
        self._component_tokens = {name: secrets.token_urlsafe(32) for name in _COMPONENTS}
        self._controllers = controllers
        self._scheduler = scheduler
        self._manifests = manifests
        self._flags = flags or {}
        self._say = say or timed_lines()
        self._daemons: list[Daemon] = []
        self._port: int | None = None
        self._etcd_flags: list[str] = []

    @property
    def url(self) -> str:
        """Of the API server. Raises `ClusterError` before the start."""
        if self._port is None:
            raise ClusterError("the control plane is not started: enter its context, or call start()")
        return f"https://{self.address}:{self._port}"

    @property
    def authority(self) -> Authority:
        """Signs further certificates that this cluster trusts."""
        return self._authority

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and return when it answers; on failure nothing is left running."""
        began = time.monotonic()
        names = ["etcd", "kube-apiserver", "kubectl"]
        names += ["kube-controller-manager"] if self._controllers else []
        names += ["kube-scheduler"] if self._scheduler else []
        self._programs = binaries.ensure(*names, say=self._say)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        self._say(f"Kubernetes answers at {self.url} after {time.monotonic() - began:.1f} s")

    def stop(self) -> None:
        """End what was started."""
        kill(self._daemons)
        self._daemons.clear()

    @contextmanager
    def api_server_away(self) -> Iterator[None]:
        """Stop kube-apiserver at once, and start it again at the end of the context; the other programs run on."""
        (stopped,) = (daemon for daemon in self._daemons if daemon.name == "kube-apiserver")
        self._daemons.remove(stopped)
        kill([stopped])
        try:
            yield
        finally:
            self._run("kube-apiserver", *self._api_server_flags(self._etcd_port))
            self._wait(self._answers, "the API server is ready again")

    def restart_etcd(self) -> None:
        """End etcd at once and start it again on its data; return when the API server is ready again."""
        (ended,) = (daemon for daemon in self._daemons if daemon.name == "etcd")
        self._daemons.remove(ended)
        kill([ended])
        self._run("etcd", *self._etcd_flags)
        self._wait(self._answers, "the API server is ready again")

    def save_etcd(self, path: Path) -> None:
        """Write a snapshot of etcd, as `etcdctl snapshot save` does."""
        with self._ask_etcd("maintenance/snapshot", {}) as answer, path.open("wb") as file:
            for line in answer:
                file.write(base64.b64decode(json.loads(line)["result"].get("blob", "")))

    def restore_etcd(self, path: Path) -> None:
        """End all programs, and start them again on a snapshot of etcd, as `etcdutl snapshot restore` makes it."""
        program = binaries.ensure("etcdutl", say=self._say)["etcdutl"]
        self.stop()
        data = f"--data-dir={self.directory / f'etcd-of-{path.name}'}"
        output_of(
            program, "snapshot", "restore", path, data, *(f for f in self._etcd_flags if f.startswith("--initial"))
        )
        self._etcd_flags = [*self._etcd_flags, data]
        self._start_programs()

    def delete_in_etcd(self, *, group: str, plural: str, namespace: str, name: str) -> None:
        """Delete an object of a custom resource as another API server on the same etcd would."""
        key = base64.b64encode(f"/registry/{group}/{plural}/{namespace}/{name}".encode()).decode()
        if self._etcd("kv/deleterange", {"key": key}).get("deleted") != "1":
            raise ClusterError(f"etcd has no {plural}.{group} {namespace}/{name}")

    @contextmanager
    def etcd_full(self) -> Iterator[None]:
        """For the duration of the context etcd takes no more, as after its quota of the disk is used up."""
        members = self._etcd("cluster/member/list", {})["members"]
        alarm = {"memberID": members[0]["ID"], "alarm": "NOSPACE"}
        self._etcd("maintenance/alarm", {"action": "ACTIVATE", **alarm})
        try:
            yield
        finally:
            self._etcd("maintenance/alarm", {"action": "DEACTIVATE", **alarm})

    def kubectl(self, *args: str, input: str | None = None, deadline_seconds: float = 60.0) -> str:  # noqa: A002
        """Run kubectl as the administrator and return what it prints; `input` becomes its standard input.

        Raises `ClusterError` with kubectl's own words when it fails.
        """
        return kubectl(self._programs["kubectl"], self.kubeconfig, *args, data=input, deadline_seconds=deadline_seconds)

    def read(self, path: str) -> dict[str, Any] | None:
        """What the API server answers to GET `path`, or None if it is not there; a hundredth of a kubectl's work.

        Raises `ClusterError` with the API server's words when it refuses, and when it does not answer.
        """
        try:
            answer = self._get(path, timeout_seconds=30)
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"GET {path}: no answer: {error}") from error
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        if answer.status != HTTPStatus.OK:
            raise ClusterError(f"GET {path}: {answer.status}: {answer.data.decode(errors='replace')}")
        found: dict[str, Any] = answer.json()
        return found

    def apply(self, path: str, manifest: Mapping[str, Any], *, user: str, field_manager: str) -> None:
        """Server-side apply of a `manifest` at its `path`, as a `user`; a hundredth of a kubectl's work.

        Raises `ClusterError` with the API server's words when it refuses, and when it does not answer.
        """
        headers = {"Impersonate-User": user, "Content-Type": "application/apply-patch+yaml"}
        path = f"{path}?fieldManager={field_manager}"
        try:
            answer = self._ask("PATCH", path, timeout_seconds=30, headers=headers, body=json.dumps(manifest))
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"PATCH {path}: no answer: {error}") from error
        if answer.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise ClusterError(f"PATCH {path}: {answer.status}: {answer.data.decode(errors='replace')}")

    def component_kubeconfig(self, component: str) -> Path:
        """A kubeconfig with the rights that Kubernetes gives to `component`, such as kube-proxy."""
        return self.kubeconfig_for(component, self._component_tokens[component])

    def kubeconfig_for(self, name: str, token: str) -> Path:
        """Write `name`.kubeconfig (mode 0600) with the given bearer token."""
        path = self.directory / f"{name}.kubeconfig"
        return write_kubeconfig(path, url=self.url, authority=self.authority.certificate, token=token)

    def _start(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._port = free_port(self.address)
        self._authority = Authority(self.directory)
        # Kept open: tests look twenty times a second, and a new connection costs ten times what the answer does.
        self._connections = urllib3.PoolManager(maxsize=4, ca_certs=str(self.authority.certificate))
        self._server_files = self._authority.issue("server", common_name="kube-apiserver", hosts=self._host_names())
        self._client_files = self._authority.issue(
            "client", common_name="kube-apiserver", organization="system:masters"
        )
        # Of its own authority: whoever has a certificate of this one may claim to speak for anybody.
        front_proxy = self.directory / "front-proxy"
        front_proxy.mkdir(mode=0o700)
        self._front_proxy = Authority(front_proxy)
        self._front_proxy_files = self._front_proxy.issue("client", common_name=_FRONT_PROXY)
        self._service_account_key = make_key(self.directory / "service-accounts.key")
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(self._token_table())
        self.kubeconfig_for("admin", self.admin_token)

        self._etcd_port = free_port()
        self._etcd_flags = self._flags_of_etcd(self._etcd_port)
        self._start_programs()

    def _start_programs(self) -> None:
        self._run("etcd", *self._etcd_flags)
        self._run("kube-apiserver", *self._api_server_flags(self._etcd_port))
        self._wait(self._answers, "the API server is ready")
        for manifest in self._manifests:
            self.kubectl("apply", "--server-side", "-f", str(manifest))
        for crd in self.kubectl("get", "crd", "-o", "name").split() if self._manifests else []:
            wait_for_crd(self.kubectl, crd.partition("/")[2])
        if self._controllers:
            self._run("kube-controller-manager", *self._controller_flags())
        if self._scheduler:
            self._run("kube-scheduler", "--secure-port=0", *_FAST_CLIENT, *self._credentials("kube-scheduler"))
        if self._controllers:
            self._wait(self._default_account_exists, "the controllers made the default ServiceAccount")

    def _run(self, name: str, *flags: str) -> None:
        log = self.directory / f"{name}.log"
        self._daemons.append(Daemon(name, [self._programs[name], *flags, *self._flags.get(name, ())], log=log))

    def _wait(self, check: Callable[[], bool], what: str) -> None:
        wait_until(check, what=what, deadline_seconds=START_SECONDS, daemons=self._daemons)

    def _host_names(self) -> list[str]:
        service = str(self.service_network.network_address + 1)
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        return [*names, "kubernetes.default.svc.cluster.local", "127.0.0.1", self.address, service]

    def _token_table(self) -> str:
        rows = [f'{self.admin_token},admin,admin,"system:masters"']
        rows += [f"{token},system:{name},system:{name}" for name, token in self._component_tokens.items()]
        rows += [
            f'{token},system:node:{name},system:node:{name},"system:nodes"' for name, token in self.node_tokens.items()
        ]
        return "\n".join(rows) + "\n"

    def _flags_of_etcd(self, port: int) -> list[str]:
        certificate, key = self._server_files
        peer = f"https://127.0.0.1:{free_port()}"
        return [
            f"--data-dir={self.directory / 'etcd'}",
            # Losing the data of a test when the machine loses power costs nothing; waiting for the disk does.
            "--unsafe-no-fsync",
            f"--listen-client-urls=https://127.0.0.1:{port}",
            f"--advertise-client-urls=https://127.0.0.1:{port}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            *(f"--{side}cert-file={certificate}" for side in ("", "peer-")),
            *(f"--{side}key-file={key}" for side in ("", "peer-")),
            *(f"--{side}trusted-ca-file={self.authority.certificate}" for side in ("", "peer-")),
            *(f"--{side}client-cert-auth" for side in ("", "peer-")),
            "--log-level=warn",
        ]

    def _api_server_flags(self, etcd_port: int) -> list[str]:
        certificate, key = self._server_files
        client_certificate, client_key = self._client_files
        front_proxy_certificate, front_proxy_key = self._front_proxy_files
        reachable = not ipaddress.ip_address(self.address).is_loopback
        return [
            f"--bind-address={self.address}",
            f"--secure-port={self._port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.authority.certificate}",
            f"--etcd-servers=https://127.0.0.1:{etcd_port}",
            f"--etcd-cafile={self.authority.certificate}",
            f"--etcd-certfile={client_certificate}",
            f"--etcd-keyfile={client_key}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            f"--service-cluster-ip-range={self.service_network}",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-signing-key-file={self._service_account_key}",
            f"--service-account-key-file={self._service_account_key}",
            f"--kubelet-certificate-authority={self.authority.certificate}",
            f"--kubelet-client-certificate={client_certificate}",
            f"--kubelet-client-key={client_key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--requestheader-client-ca-file={self._front_proxy.certificate}",
            f"--requestheader-allowed-names={_FRONT_PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={front_proxy_certificate}",
            f"--proxy-client-key-file={front_proxy_key}",
            # The Service "kubernetes" may not point at loopback, so it has an endpoint only where pods can reach us.
            *([f"--advertise-address={self.address}"] if reachable else ["--endpoint-reconciler-type=none"]),
            *([] if self._controllers else ["--disable-admission-plugins=ServiceAccount"]),
            "--profiling=false",
        ]

    def _controller_flags(self) -> list[str]:
        return [
            "--secure-port=0",
            *_FAST_CLIENT,
            *self._credentials("kube-controller-manager"),
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._service_account_key}",
            f"--root-ca-file={self.authority.certificate}",
            # A node that stops answering is noticed after 10 s instead of 50, so tests can wait for it.
            "--node-monitor-grace-period=10s",
        ]

    def _credentials(self, component: str) -> list[str]:
        return [f"--kubeconfig={self.component_kubeconfig(component)}", "--leader-elect=false"]

    def _answers(self) -> bool:
        try:
            return self._get("/readyz", timeout_seconds=5).status == HTTPStatus.OK
        except urllib3.exceptions.HTTPError:
            return False

    def _get(self, path: str, *, timeout_seconds: float) -> urllib3.BaseHTTPResponse:
        return self._ask("GET", path, timeout_seconds=timeout_seconds)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Ask the API server as the administrator; raises `urllib3.exceptions.HTTPError` without an answer."""
        return self._connections.request(
            method,
            self.url + path,
            headers={"Authorization": f"Bearer {self.admin_token}", **(headers or {})},
            body=body,
            timeout=timeout_seconds,
            redirect=False,
            retries=False,
        )

    def _etcd(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Call etcd's gateway from gRPC to JSON."""
        with self._ask_etcd(path, content) as response:
            found: dict[str, Any] = json.load(response)
        return found

    @contextmanager
    def _ask_etcd(self, path: str, content: Mapping[str, Any]) -> Iterator[Any]:
        request = urllib.request.Request(f"https://127.0.0.1:{self._etcd_port}/v3/{path}", json.dumps(content).encode())
        try:
            with self._etcd_opener().open(request, timeout=10) as response:
                yield response
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            raise ClusterError(f"etcd did not answer {path}: {error}") from error

    def _etcd_opener(self) -> urllib.request.OpenerDirector:
        trust = ssl.create_default_context(cafile=str(self.authority.certificate))
        trust.load_cert_chain(*self._client_files)
        return direct.opener(urllib.request.HTTPSHandler(context=trust))

    def _default_account_exists(self) -> bool:
        return "default" in self.kubectl("get", "serviceaccounts", "--namespace=default", "-o", "name")

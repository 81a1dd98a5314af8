"""The page of an operator's front, on a real API server: what it says to a token is what the page goes by.

The operator runs with the chart's rights alone, and the front with none. Nodes are the one stand-in: one answers the
API server with logs.
"""

import asyncio
import base64
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from prometheus_client.parser import text_string_to_metric_families
from support.browser import browser, chromium
from support.cable import Cable
from support.kube_builders import FUNCTION
from support.operator_cluster import PATHS, seconds_until
from support.operator_process import ACCOUNT, operator_process, restricted_kubeconfig
from support.permissions import RULES
from support.ports import free_port
from support.processes import RealProcess, http

from cluster.control_plane import ControlPlane
from rewardpool_api import names
from rewardpool_api.crd import crd_yaml
from rewardpool_operator.front import ALIVE
from rewardpool_operator.kubernetes.page.reviews import REMEMBER_SECONDS
from rewardpool_page.server import SESSION_HEADER

pytestmark = pytest.mark.real

NODE = "page-node"
OURS, THEIRS = "page-ours", "page-theirs"
RBAC = "rbac.authorization.k8s.io"
READS_POOLS = {"apiGroups": [names.GROUP], "resources": ["rewardpools"], "verbs": ["list"]}
LISTS_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
READS_LOGS = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
WHOLE_LOG = "loaded the model\nready\n"


class StandInKubelet(BaseHTTPRequestHandler):
    """Has the same log of every container."""

    def do_GET(self) -> None:
        body = WHOLE_LOG.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Page:
    """Operators that serve the page, and accounts to look at it with."""

    def __init__(self, plane: ControlPlane, cable: Cable, folder: Path, stack: ExitStack) -> None:
        self.plane, self.cable = plane, cable
        self._folder, self._stack = folder, stack
        self._kubeconfig = restricted_kubeconfig(plane, OURS, url=cable.url)

    def apply(self, *manifests: dict[str, Any]) -> None:
        self.plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(manifests))

    def grant(self, account: str, namespace: str, *rules: dict[str, Any], cluster: bool = False) -> None:
        """Give an account of our namespace these rights in a namespace, or in the whole cluster."""
        prefix, metadata = ("Cluster", {}) if cluster else ("", {"namespace": namespace})
        metadata["name"] = f"{account}-page"
        subject = {"kind": "ServiceAccount", "name": account, "namespace": OURS}
        role: dict[str, Any] = {"kind": f"{prefix}Role", "metadata": metadata, "rules": list(rules)}
        role_ref = {"apiGroup": RBAC, "kind": f"{prefix}Role", "name": metadata["name"]}
        binding = {"kind": f"{prefix}RoleBinding", "metadata": metadata, "roleRef": role_ref, "subjects": [subject]}
        self.apply(*({"apiVersion": f"{RBAC}/v1", **manifest} for manifest in (role, binding)))

    def token(self, account: str, *rules: dict[str, Any]) -> str:
        """Of a new account with these rights in our namespace."""
        self.plane.kubectl("create", "serviceaccount", account, "--namespace", OURS)
        if rules:
            self.grant(account, OURS, *rules)
            seconds_until(lambda: all(self._grants(account, rule) for rule in rules), limit=20)
        return self.plane.kubectl("create", "token", account, "--namespace", OURS).strip()

    def _grants(self, account: str, rule: dict[str, Any]) -> bool:
        """Whether the API server goes by a right already: it reads Roles some moments after they were written."""
        (group,), (resource,), (verb,) = rule["apiGroups"], rule["resources"], rule["verbs"]
        resource, _, subresource = resource.partition("/")
        asked = {"namespace": OURS, "group": group, "resource": resource, "subresource": subresource, "verb": verb}
        spec = {"user": f"system:serviceaccount:{OURS}:{account}", "resourceAttributes": asked}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        said = self.plane.kubectl("create", "-o", "json", "-f", "-", input=json.dumps(review))
        return bool(json.loads(said)["status"]["allowed"])

    def start_operator(self) -> "Pair":
        """One more operator with its front, which waits where another one leads."""
        pair = Pair(self._folder / f"{free_port()}")
        socket, probe = pair.folder / "front.sock", pair.folder / "probe.sock"
        flags = [f"--namespace={THEIRS}", f"--front-socket={socket}", "--front-page", f"--probe-socket={probe}"]
        pair.operator = self._stack.enter_context(
            operator_process(
                self._kubeconfig,
                namespace=OURS,
                health_port=free_port(),
                log=pair.folder / "operator.log",
                lease=f"{OURS}/rewardpool",
                flags=flags,
            )
        )
        host, port = self.cable.url.removeprefix("https://").split(":")
        rewardpool = Path(sys.executable).with_name("rewardpool")
        command = [str(rewardpool), "operator", "front", f"--socket={socket}", f"--health-port={pair.health}"]
        command += [f"--metrics-port={pair.metrics}", f"--page-port={pair.page}"]
        command += [f"--namespace={OURS}", f"--namespace={THEIRS}", f"--cluster-ca={self.plane.authority.certificate}"]
        nothing = {"KUBECONFIG": str(pair.folder / "none"), "HOME": str(pair.folder)}
        address = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        log = pair.folder / "front.log"
        pair.front = self._stack.enter_context(RealProcess(command, log=log, env=nothing | address, cwd=pair.folder))
        pair.front.until(lambda: _answers(pair.url), seconds=30, what="the page answers")
        pair.operator.until(lambda: pair.probe().returncode == 0, seconds=30, what="the operator is well")
        return pair


class Pair:
    """An operator and its front."""

    operator: RealProcess
    front: RealProcess

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.health, self.metrics, self.page = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.page}"

    def probe(self) -> "subprocess.CompletedProcess[str]":
        """The kubelet's probe of the operator."""
        command = [sys.executable, "-m", "rewardpool_operator.healthy", str(self.folder / "probe.sock")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def asked(self, port: int, path: str) -> tuple[int, str]:
        """What the front answers."""
        status, _, said = http("GET", f"http://127.0.0.1:{port}{path}")
        return status, said


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def a_pool(namespace: str) -> dict[str, Any]:
    metadata = {"name": "rm", "namespace": namespace}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": FUNCTION}


@pytest.fixture(scope="module")
def page(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    plane = control_plane
    plane.kubectl("apply", "--server-side", "-f", "-", input=crd_yaml())
    with ExitStack() as stack:
        for namespace in (OURS, THEIRS):
            plane.kubectl("create", "namespace", namespace)
            stack.callback(plane.kubectl, "delete", "namespace", namespace, "--wait=false")
        cable = stack.enter_context(Cable(plane.url))
        page = Page(plane, cable, tmp_path_factory.mktemp("page"), stack)
        page.grant(ACCOUNT, THEIRS, *RULES)
        page.apply(a_pool(OURS), a_pool(THEIRS))
        yield page


@pytest.fixture(scope="module")
def pair(page: Page) -> Pair:
    pair = page.start_operator()
    seconds_until(lambda: worker_pods(page), limit=40)
    return pair


@pytest.fixture(scope="module")
def url(pair: Pair) -> str:
    return pair.url


@pytest.fixture(scope="module")
def viewer(page: Page) -> str:
    """The token of somebody who may see all of one namespace."""
    return page.token("viewer", READS_POOLS, LISTS_PODS, READS_LOGS)


def worker_pods(page: Page) -> list[str]:
    selector = f"{names.LABEL_COMPONENT}={names.COMPONENT_WORKER}"
    found = page.plane.read(f"{PATHS['pod'].format(OURS)}?labelSelector={selector}") or {"items": []}
    return [pod["metadata"]["name"] for pod in found["items"]]


class Browser:
    """As much of one as a token needs."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def sign_in(self, token: str) -> int:
        async with self._session.post("/api/session", json={"token": token}) as answer:
            if answer.status == 200:
                self._session.headers[SESSION_HEADER] = (await answer.json())["session"]
            return answer.status

    async def shown(self, pool: str = f"{OURS}/rm") -> dict[str, Any]:
        async with self._session.get("/api/pools", params={"pool": pool}) as answer:
            answer.raise_for_status()
            found: dict[str, Any] = await answer.json()
        return found

    async def shows(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """What is shown once this holds of it: all see the same for a second, whatever watches tell meanwhile."""
        deadline = time.monotonic() + 20
        while not holds(found := await self.shown()):
            assert time.monotonic() < deadline, f"it shows {found}"
            await asyncio.sleep(0.2)
        return found

    async def status(self) -> int:
        """What the pools are answered with."""
        async with self._session.get("/api/pools") as answer:
            return answer.status

    async def log(self, pod: str, pool: str = f"{OURS}/rm") -> tuple[int, str]:
        async with self._session.get("/api/logs", params={"pool": pool, "name": pod}) as answer:
            return answer.status, await answer.text()

    async def manifest(self, pool: str = f"{OURS}/rm") -> tuple[int, str]:
        async with self._session.get("/api/manifest", params={"pool": pool}) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def at(url: str) -> AsyncIterator[Browser]:
    async with aiohttp.ClientSession(url) as session:
        yield Browser(session)


async def test_a_viewer_sees_the_namespace_that_the_token_may_read_alone(url: str, page: Page, viewer: str) -> None:
    async with at(url) as browser:
        assert await browser.sign_in(viewer) == 200
        shown = await browser.shows(lambda shown: shown["pool"] and shown["pool"]["workers"])
        assert [pool["key"] for pool in shown["pools"]] == [f"{OURS}/rm"]
        assert [worker["name"] for worker in shown["pool"]["workers"]] == worker_pods(page)
        assert (await browser.shown(f"{THEIRS}/rm"))["pool"] is None
        assert (await browser.log("any", f"{THEIRS}/rm"))[0] == 404
        status, manifest = await browser.manifest()
        assert (status, yaml.safe_load(manifest)["metadata"]) == (200, {"name": "rm", "namespace": OURS})
        assert (await browser.manifest(f"{THEIRS}/rm"))[0] == 404


async def test_who_may_not_list_pods_sees_a_pool_without_its_workers(url: str, page: Page) -> None:
    token = page.token("trainer", READS_POOLS)
    async with at(url) as browser:
        assert await browser.sign_in(token) == 200
        pool = (await browser.shows(lambda shown: shown["pool"]))["pool"]
    assert (pool["workers"], pool["workers_hidden"], pool["summary"]["key"]) == ([], True, f"{OURS}/rm")


@pytest.mark.parametrize(("account", "rules"), [("nobody", ()), ("reader", ({**READS_POOLS, "verbs": ["get"]},))])
async def test_whose_token_may_list_no_pools_sees_none(url: str, page: Page, account: str, rules: Any) -> None:
    token = page.token(account, *rules)
    async with at(url) as browser:
        assert await browser.sign_in(token) == 200
        assert (await browser.shown())["pools"] == []


def signed(plane: ControlPlane, claims: dict[str, Any]) -> str:
    """A token of the cluster's own issuer."""
    key = load_pem_private_key((plane.directory / "service-accounts.key").read_bytes(), password=None)

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    assert isinstance(key, ec.EllipticCurvePrivateKey)
    text = f"{part(json.dumps({'alg': 'ES256'}).encode())}.{part(json.dumps(claims).encode())}"
    numbers = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(SHA256())))
    return f"{text}.{part(b''.join(number.to_bytes(32, 'big') for number in numbers))}"


# The API server lets clocks differ by a minute.
@pytest.mark.parametrize(("seconds", "status"), [(600, 200), (-90, 401)])
async def test_an_expired_token_is_refused(url: str, page: Page, viewer: str, seconds: int, status: int) -> None:
    payload = viewer.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    token = signed(page.plane, {**claims, "exp": int(time.time()) + seconds})
    async with at(url) as browser:
        assert await browser.sign_in(token) == status


@pytest.mark.parametrize("spoil", [lambda token: "wrong", lambda token: f"{token[:-8]}AAAAAAAA"])
async def test_a_wrong_token_is_refused(url: str, viewer: str, spoil: Any) -> None:
    async with at(url) as browser:
        assert await browser.sign_in(spoil(viewer)) == 401
        assert await browser.status() == 401


async def test_a_session_ends_soon_after_its_account(url: str, page: Page) -> None:
    token = page.token("leaver", READS_POOLS)
    async with at(url) as browser:
        assert await browser.sign_in(token) == 200
        page.plane.kubectl("delete", "serviceaccount", "leaver", "--namespace", OURS)
        deadline = time.monotonic() + 2 * REMEMBER_SECONDS
        while (status := await browser.status()) == 200 and time.monotonic() < deadline:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.5)
    assert status == 401


async def test_while_the_api_server_is_away_nobody_new_is_let_in_and_words_say_why(
    url: str, page: Page, viewer: str
) -> None:
    token = page.plane.kubectl("create", "token", "viewer", "--namespace", OURS).strip()
    async with at(url) as inside, at(url) as outside:
        assert await inside.sign_in(viewer) == 200
        await inside.shown()
        page.cable.cut()
        try:
            assert (await inside.shown())["pools"]
            assert await outside.sign_in(token) == 503
        finally:
            page.cable.repair()
        assert await outside.sign_in(token) == 200


@pytest.fixture(scope="module")
def bound_pod(page: Page, url: str) -> Iterator[str]:
    """A worker's pod on a node that answers for logs."""
    certificate, key = page.plane.authority.issue("kubelet", common_name=NODE, hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandInKubelet)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": server.server_port}},
    }
    patch = json.dumps({"status": status})
    page.plane.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", "-p", patch)
    (pod,) = worker_pods(page)
    metadata = {"name": pod, "namespace": OURS}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": NODE}}
    path = f"{PATHS['pod'].format(OURS)}/{pod}/binding"
    page.plane.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(binding))
    yield pod
    page.plane.kubectl("delete", "node", NODE)
    server.shutdown()
    server.server_close()


async def test_a_log_is_read_with_the_viewers_own_rights(url: str, page: Page, viewer: str, bound_pod: str) -> None:
    onlooker = page.token("onlooker", READS_POOLS, LISTS_PODS)
    async with at(url) as one, at(url) as other:
        assert [await one.sign_in(viewer), await other.sign_in(onlooker)] == [200, 200]
        assert await one.log(bound_pod) == (200, WHOLE_LOG)
        status, said = await other.log(bound_pod)
    assert (status, f"serviceaccount:{OURS}:onlooker" in said, 'cannot get resource "pods/log"' in said) == (
        404,
        True,
        True,
    )


async def test_the_operator_that_waits_serves_the_same_page(url: str, page: Page, viewer: str) -> None:
    second_url = page.start_operator().url
    async with at(url) as first, at(second_url) as second:
        assert [await one.sign_in(viewer) for one in (first, second)] == [200, 200]
        shown = [await one.shows(lambda shown: shown["pool"]) for one in (second, first)]
    assert shown[0]["pool"]["workers"] == shown[1]["pool"]["workers"] != []


def test_no_token_is_in_a_log(pair: Pair, viewer: str) -> None:
    logs = [(pair.folder / f"{name}.log").read_text() for name in ("operator", "front")]
    assert ["runs" in log for log in logs] == [True, True]
    assert viewer.split(".")[1] not in "".join(logs)


def test_an_operator_that_hangs_fails_its_probe_and_its_front_lives(pair: Pair) -> None:
    assert pair.asked(pair.health, ALIVE)[0] == 200
    pair.operator.signal(signal.SIGSTOP)
    try:
        assert "the operator does not answer" in pair.probe().stderr
        assert pair.asked(pair.health, ALIVE)[0] == 200
    finally:
        pair.operator.signal(signal.SIGCONT)
    pair.operator.until(lambda: pair.probe().returncode == 0, seconds=60, what="it is well again")


def test_a_front_that_hangs_fails_no_probe_of_its_operator(pair: Pair) -> None:
    pair.front.signal(signal.SIGSTOP)
    try:
        with socket.socket(socket.AF_UNIX) as hung:
            hung.connect(str(pair.folder / "front.sock"))
            assert pair.probe().returncode == 0
    finally:
        pair.front.signal(signal.SIGCONT)


def test_health_and_metrics_are_the_operators(pair: Pair) -> None:
    status, health = pair.asked(pair.health, "/healthz")
    assert (status, health["ok"], health["pools"]) == (200, True, 2)
    samples = text_string_to_metric_families(pair.asked(pair.metrics, "/metrics")[1])
    assert {sample.labels["pool"] for family in samples for sample in family.samples if "pool" in sample.labels} == {
        "rm"
    }


@pytest.mark.skipif(chromium() is None, reason="chromium is not installed: `make packages` installs it")
async def test_a_browser_signs_in_by_the_form_and_signs_out(url: str, viewer: str, tmp_path: Path) -> None:
    async with browser(tmp_path / "profile") as tab:
        await tab.open(url)
        assert "kubectl create token" in await tab.wait_for("form.sign-in")
        await tab.evaluate(
            f"document.querySelector('input').value = {json.dumps(viewer)};"
            "document.querySelector('form button').click()"
        )
        assert f"{OURS}/rm" in await tab.wait_for("#list")
        assert await tab.wait_for("#workers table")
        assert await tab.evaluate("document.cookie + location.href + JSON.stringify(localStorage)") == f"{url}/{{}}"
        await tab.evaluate("document.getElementById('sign-out').click()")
        assert await tab.wait_for("form.sign-in")

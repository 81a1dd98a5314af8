"""The objects: a pool whose function is a ConfigMap of kustomize's, its namespace, and the pods that ask it."""

import base64
import io
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from cluster.certificates import Authority
from cluster.folders import REPOSITORY
from cluster.node_files import GVISOR
from cluster.processes import output_of
from faults.manifests import ACCOUNT, asking_pod, requests
from installation import IMAGE
from overlay import chart_image
from rewardpool_api import names
from sandboxed.samples import SECRET

Manifest = dict[str, Any]

NAMESPACE: Final = "rewardpool-sandboxed"
"""Of the pool; it takes restricted pods alone."""
JOBS: Final = "rewardpool-sandboxed-jobs"
"""Of the pods that ask: those write to the node's folders."""
POOL: Final = "checker"
ISOLATED: Final = "isolated"
"""The pool on gVisor."""
WORKERS: Final = 2
PROFILE: Final = "no-landlock.json"
KEY_FILE: Final = f"{names.KEY_DIR}/{names.SECRET_KEY}"

INDEX: Final = "index"
INDEX_PORT: Final = 8000
WHEEL: Final = "rewards-1.0-py3-none-any.whl"
WHEEL_URL: Final = f"http://{INDEX}:{INDEX_PORT}/{WHEEL}"
GIT: Final = "git"
GIT_PORT: Final = 8443
GIT_URL: Final = f"https://{GIT}:{GIT_PORT}/rewards"

_EXAMPLE = REPOSITORY / "examples" / "function"
_HERE = Path(__file__).parent


def namespaces() -> list[Manifest]:
    """Both namespaces, with what the jobs are."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    programs = {"__init__.py": "", "job.py": (_HERE / "job.py").read_text()}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": JOBS}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": JOBS}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "programs", "namespace": JOBS},
            "data": programs,
        },
    ]


def chart_values() -> Mapping[str, Any]:
    """Values of the chart: the image that was just built, and the jobs' right to use the pool."""
    account = {"namespace": JOBS, "name": ACCOUNT}
    trainer = {"namespace": NAMESPACE, "pools": [POOL, ISOLATED], "serviceAccounts": [account], "jobs": []}
    return {"image": chart_image(IMAGE), "trainers": [trainer]}


def pool() -> Manifest:
    """The example's pool of a function from a ConfigMap, with limits of its own."""
    made: Manifest = yaml.safe_load((_EXAMPLE / "configmap.yaml").read_text())
    spec = made["spec"]
    spec["engine"]["env"].append({"name": "SECRET", "value": SECRET})
    (worker,) = spec["worker"]["podTemplate"]["spec"]["containers"]
    worker["resources"] = {**requests(cpu="100m", memory="64Mi"), "limits": {"memory": "3Gi"}}
    router = {"name": "router", "resources": requests(cpu="50m", memory="128Mi")}
    spec |= {
        # A call waits for its sandbox, on a busy machine for long.
        "sandbox": {"idleSeconds": 240, "memory": "1Gi", "concurrency": 2},
        "replicas": WORKERS,
        "router": {"replicas": 1, "podTemplate": {"spec": {"containers": [router]}}},
        "network": {"namespaces": [JOBS]},
        "rollout": {"progressDeadlineSeconds": 180},
    }
    return {**made, "metadata": {"name": POOL, "namespace": NAMESPACE}}


def without_landlock(deployed: Manifest, name: str, sandbox: Manifest | None) -> Manifest:
    """The pool as it is deployed, with this `spec.sandbox`, and one worker whose kernel seems to have no Landlock."""
    spec: Manifest = {key: value for key, value in deployed["spec"].items() if key != "sandbox"}
    worker = spec["worker"]
    template = worker["podTemplate"]["spec"]
    seccomp = {"seccompProfile": {"type": "Localhost", "localhostProfile": PROFILE}}
    spec |= {
        "replicas": 1,
        "worker": {**worker, "podTemplate": {"spec": {**template, "securityContext": seccomp}}},
        **({"sandbox": sandbox} if sandbox is not None else {}),
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}


def on_gvisor(deployed: Manifest) -> Manifest:
    """The pool as it is deployed, with one worker, on a kernel of its own."""
    spec = deployed["spec"]
    template = {**spec["worker"]["podTemplate"]["spec"], "runtimeClassName": GVISOR}
    spec = {**spec, "replicas": 1, "worker": {**spec["worker"], "podTemplate": {"spec": template}}}
    metadata = {"name": ISOLATED, "namespace": NAMESPACE}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}


def profile() -> Manifest:
    """A seccomp profile by which a kernel seems to have neither Landlock nor namespaces (ENOSYS)."""
    calls = [*(f"landlock_{call}" for call in ("create_ruleset", "add_rule", "restrict_self")), "unshare"]
    refused = {"names": calls, "action": "SCMP_ACT_ERRNO", "errnoRet": 38}
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]}


def write_function(folder: Path, *, version: int) -> None:
    """Write what `kubectl apply -k` takes, as in the example: the pool, and its function's code in this version."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("kustomization.yaml", "references.yaml"):
        (folder / name).write_text((_EXAMPLE / name).read_text())
    made = pool()
    # kustomize sees one ConfigMap in the generated one and in the pool's where both are in one namespace, or in none.
    del made["metadata"]["namespace"]
    (folder / "configmap.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    code = (_HERE / "reward.py").read_text()
    (folder / "rewards.py").write_text(code.replace("VERSION = 1\n", f"VERSION = {version}\n"))


def index(wheel: bytes) -> list[Manifest]:
    """A pod that has a wheel to be fetched, and its Service: `WHEEL_URL`."""
    command = ["python3", "-m", "http.server", str(INDEX_PORT), "--directory=/files"]
    return _host(INDEX, command, INDEX_PORT, {WHEEL: wheel})


def git_host(repository: bytes, authority: Authority) -> list[Manifest]:
    """A pod that has a git repository to be fetched, given as a bundle, and its Service: `GIT_URL`."""
    certificate, key = authority.issue(GIT, common_name=GIT, hosts=[GIT])
    files = {
        "bundle": repository,
        "git_host.py": (REPOSITORY / "tests" / "support" / "git_host.py").read_bytes(),
        **{file.name: file.read_bytes() for file in (certificate, key, authority.certificate)},
    }
    serve = f"python3 /files/git_host.py /tmp 0.0.0.0 {GIT_PORT} --certificate /files/git.crt --key /files/git.key"
    command = ["sh", "-c", f"git clone --quiet --bare /files/bundle /tmp/rewards && exec {serve}"]
    return _host(GIT, command, GIT_PORT, files)


def _host(name: str, command: list[str], port: int, files: Mapping[str, bytes]) -> list[Manifest]:
    """A pod that serves files, from /files, its Service, and the Secret that has them."""
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": name}}
    container = {
        "name": name,
        "image": IMAGE,
        "command": command,
        "volumeMounts": [{"name": "files", "mountPath": "/files"}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "files", "secret": {"secretName": name}}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    data = {file: base64.b64encode(content).decode() for file, content in files.items()}
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
        },
    ]


def wheel() -> bytes:
    """A wheel with the example's function."""
    code = (_EXAMPLE / "rewards.py").read_text()
    info = "rewards-1.0.dist-info"
    files = {
        "rewards.py": code,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: rewards\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: e2e\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return made.getvalue()


def pool_of_wheel(digest: str) -> Manifest:
    """The example's pool of a function from a wheel, which it fetches from `index`."""
    made: Manifest = yaml.safe_load((_EXAMPLE / "wheel.yaml").read_text())
    made["metadata"] = {"name": "wheel", "namespace": NAMESPACE}
    (fetch,) = made["spec"]["worker"]["podTemplate"]["spec"]["initContainers"]
    fetch |= {"image": IMAGE, "args": [f"rewards @ {WHEEL_URL}#sha256={digest}"]}
    return made


def repository(folder: Path) -> tuple[bytes, str]:
    """A git repository with the example's function in its folder `src`, as a bundle, and its commit."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "src").mkdir(parents=True)
    shutil.copy(_EXAMPLE / "rewards.py", folder / "src")
    git = ("git", "-C", folder, "-c", "user.name=e2e", "-c", "user.email=e2e@localhost")
    output_of(*git, "init", "--quiet", "--initial-branch=main")
    output_of(*git, "add", "src")
    output_of(*git, "commit", "--quiet", "--message=A function")
    output_of(*git, "bundle", "create", "--quiet", "bundle", "main")
    return (folder / "bundle").read_bytes(), output_of(*git, "rev-parse", "main").strip()


def pool_of_git(commit: str) -> Manifest:
    """The example's pool of a function from git, which it fetches from `git_host`."""
    made: Manifest = yaml.safe_load((_EXAMPLE / "git.yaml").read_text())
    made["metadata"] = {"name": "git-function", "namespace": NAMESPACE}
    template = made["spec"]["worker"]["podTemplate"]["spec"]
    (fetch,) = template["initContainers"]
    fetch |= {
        "image": IMAGE,
        "args": [GIT_URL, commit, "--path=src"],
        "env": [{"name": "GIT_SSL_CAINFO", "value": "/authority/ca.crt"}],
    }
    fetch["volumeMounts"].append({"name": "authority", "mountPath": "/authority"})
    certificate = {"secretName": GIT, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    template["volumes"].append({"name": "authority", "secret": certificate})
    return made


def job(name: str, folder: Path, *, pool: str = POOL, callers: int, once: bool) -> Manifest:
    """A pod that asks."""
    command = ("sandboxed.job", f"{NAMESPACE}/{pool}", str(folder), f"--callers={callers}")
    once_only = ("--once",) if once else ()
    return asking_pod(name, (*command, *once_only), {"sandboxed": "programs"}, folder, in_namespace=JOBS)

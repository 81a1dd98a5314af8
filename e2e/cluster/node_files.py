"""The configuration files of a node's programs, as text; pure functions of the addresses.

The settings that differ from the programs' defaults are here because the node lives in namespaces on somebody's
machine: control groups of its own, no say over swap, disk or kernel settings, and no wish for any.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster.network import Network

SOCKET = "/run/containerd/containerd.sock"
DNS_READY_PORT = 8181
PROXY_HEALTH_PORT = 10256
RUNSC_CONFIG = "runsc.toml"
GVISOR = "gvisor"
"""Name of gVisor's RuntimeClass."""


def containerd(
    *, root: Path, cni_plugins: Path, cni_settings: Path, runtimes: Path, registries: Path, sandbox_image: str
) -> str:
    """Containerd's config.toml; its own socket and state stay at their usual places under /run."""
    return f"""\
version = 2
root = {json.dumps(str(root))}
[grpc]
address = {json.dumps(SOCKET)}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = {json.dumps(sandbox_image)}
# Without CAP_SYS_RESOURCE a process may not lower its own score, and every sandbox would fail to start.
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
# Its programs come with `NodeCluster.gvisor`.
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc]
runtime_type = "io.containerd.runsc.v1"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc.options]
TypeUrl = "io.containerd.runsc.v1.options"
ConfigPath = {json.dumps(str(runtimes / RUNSC_CONFIG))}
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = {json.dumps(str(registries))}
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {json.dumps(str(cni_plugins))}
conf_dir = {json.dumps(str(cni_settings))}
"""


def plain_http(registry: str) -> str:
    """The hosts.toml of a registry that has no TLS."""
    url = json.dumps(f"http://{registry}")
    # containerd 1.6 takes no file without a host.
    return f'server = {url}\n[host.{url}]\ncapabilities = ["pull", "resolve"]\n'


def runsc() -> str:
    """The settings of gVisor's runsc, as its shim reads them."""
    return '[runsc_config]\nignore-cgroups = "true"\n'


def runtime_class() -> str:
    """Gvisor's RuntimeClass, as a manifest."""
    return _yaml(apiVersion="node.k8s.io/v1", kind="RuntimeClass", metadata={"name": GVISOR}, handler="runsc")


def cni(network: Network) -> str:
    """The pod network: each pod on a wire of its own, so that all traffic is routed and kube-proxy sees all of it.

    On a shared bridge the answer of a Service's pod to its neighbour would pass by the rules that undo the rewriting.
    """
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": str(network.pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [
        {"type": "ptp", "ipMasq": False, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": plugins})


def kubelet(network: Network, *, cgroup: str, authority: Path, certificate: Path, key: Path, logs: Path) -> str:
    """The KubeletConfiguration."""
    return _yaml(
        apiVersion="kubelet.config.k8s.io/v1beta1",
        kind="KubeletConfiguration",
        address=str(network.node),
        authentication={
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        authorization={"mode": "Webhook"},
        tlsCertFile=str(certificate),
        tlsPrivateKeyFile=str(key),
        containerRuntimeEndpoint=f"unix://{SOCKET}",
        clusterDNS=[str(network.node)],
        clusterDomain="cluster.local",
        # Empty: the host's resolver is no use to pods that cannot leave the node.
        resolvConf="",
        cgroupDriver="cgroupfs",
        cgroupRoot=f"/{cgroup}",
        cgroupsPerQOS=False,
        enforceNodeAllocatable=[],
        failSwapOn=False,
        podLogsDir=str(logs),
        volumePluginDir="/var/lib/kubelet-volume-plugins",
        # A full disk of the developer's is no reason to evict the test's pods or delete its images.
        evictionHard={"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        imageGCHighThresholdPercent=100,
        serializeImagePulls=False,
        # So often are the files of Secrets and ConfigMaps renewed; the default of a minute is long for a test.
        syncFrequency="5s",
        # So long at most waits a container that ends again and again; the default of five minutes is a whole test.
        featureGates={"KubeletCrashLoopBackOffMax": True},
        crashLoopBackOff={"maxContainerRestartPeriod": "10s"},
        kubeAPIQPS=100,
        kubeAPIBurst=200,
    )


def kube_proxy(network: Network, *, kubeconfig: Path, node: str) -> str:
    """The KubeProxyConfiguration."""
    return _yaml(
        apiVersion="kubeproxy.config.k8s.io/v1alpha1",
        kind="KubeProxyConfiguration",
        mode="iptables",
        clusterCIDR=str(network.pods),
        hostnameOverride=node,
        healthzBindAddress=f"{network.node}:{PROXY_HEALTH_PORT}",
        clientConnection={"kubeconfig": str(kubeconfig), "qps": 100, "burst": 200},
        # The table of connections belongs to the whole machine and may not be resized from a namespace.
        conntrack={"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        iptables={"minSyncPeriod": "100ms"},
    )


def corefile(network: Network, *, kubeconfig: Path) -> str:
    """CoreDNS: the cluster's names, and "no such name" for all others, at once instead of after a timeout."""
    # Two blocks, because in one the template would answer before the cluster's names are looked up.
    return f"""\
cluster.local {{
    bind {network.node}
    errors
    ready {network.node}:{DNS_READY_PORT}
    kubernetes {{
        kubeconfig {kubeconfig}
    }}
}}
. {{
    bind {network.node}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def dns_role() -> str:
    """What CoreDNS reads from the API server, as manifests."""
    rules: Sequence[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["services", "namespaces", "pods"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "coredns"}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "coredns"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "coredns"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "system:coredns"}],
    }
    return yaml.safe_dump_all([role, binding])


def _yaml(**settings: Any) -> str:
    return yaml.safe_dump(settings)

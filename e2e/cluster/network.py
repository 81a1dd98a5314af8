"""The addresses of the nodes, and the wires between them and the host.

A node lives in a network namespace of its own, joined to the host by a pair of virtual interfaces; pods hang behind
it. The host's firewall, its other interfaces and its forwarding setting are not touched: all that the host gets is one
interface and two routes for each node, and they vanish with the namespace.

    host 10.N.0.1 --- 10.N.0.2 node -+- pods 10.N.64.0/18
                                     +- Services 10.N.128.0/17 (kube-proxy)

Every further node has a network of its own and shares the first one's Services. A wire between each two nodes carries
what their pods say to each other, so that the host need not forward it.

Pods reach each other, the Services and the host, and nothing else. The address of a pod that is gone goes silent, as
on a real network, where loopback would refuse.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from cluster.processes import ClusterError, output_of


@dataclass(frozen=True)
class Network:
    """The addresses that follow from `number`, the second byte of the network 10.N.0.0/16."""

    number: int

    @property
    def whole(self) -> IPv4Network:
        """All addresses of the node, its pods and Services."""
        return IPv4Network(f"10.{self.number}.0.0/16")

    @property
    def host(self) -> IPv4Address:
        """The host's end of the wire: the API server listens here."""
        return IPv4Address(f"10.{self.number}.0.1")

    @property
    def node(self) -> IPv4Address:
        """The node's end of the wire: kubelet and DNS listen here."""
        return IPv4Address(f"10.{self.number}.0.2")

    @property
    def pods(self) -> IPv4Network:
        """Where pods get their addresses."""
        return IPv4Network(f"10.{self.number}.64.0/18")

    @property
    def services(self) -> IPv4Network:
        """Where Services get their addresses."""
        return IPv4Network(f"10.{self.number}.128.0/17")

    @property
    def interface(self) -> str:
        """The name of the host's interface."""
        return f"rewardpool{self.number}"


def free_network(taken: Iterable[str]) -> Network:
    """The first network, of 10.200 to 10.250, that overlaps none of `taken` (networks or addresses).

    Raises `ClusterError` when all are in use.
    """
    used = [IPv4Network(destination, strict=False) for destination in taken]
    for number in range(200, 251):
        network = Network(number)
        if not any(network.whole.overlaps(other) for other in used):
            return network
    raise ClusterError(
        "all of 10.200.0.0/16 to 10.250.0.0/16 are routed on this machine; no network is left for a node"
    )


def routed_destinations() -> list[str]:
    """The networks and addresses in the host's routing tables, the default route aside."""
    routes = json.loads(output_of("ip", "-4", "-json", "route", "show", "table", "all"))
    return [route["dst"] for route in routes if route["dst"] != "default"]


def connect(network: Network, *, namespace_pid: int, services: bool = True) -> None:
    """Make the wire: one end on the host, the other in the network namespace of `namespace_pid` as eth0.

    With `services` the host reaches the network's Services through this node.
    """
    far = f"rpn{network.number}"
    _ip("link", "add", network.interface, "type", "veth", "peer", "name", far)
    _ip("link", "set", far, "netns", str(namespace_pid), "name", "eth0")
    _ip("address", "add", f"{network.host}/30", "dev", network.interface)
    _ip("link", "set", network.interface, "up")
    for behind in (network.pods, network.services) if services else (network.pods,):
        _ip("route", "add", str(behind), "via", str(network.node), "dev", network.interface)


def join(name: str, *, pids: tuple[int, int]) -> None:
    """Make a wire called `name` between the network namespaces of two processes."""
    one, other = map(str, pids)
    _ip("link", "add", name, "netns", one, "type", "veth", "peer", "name", name, "netns", other)


def disconnect(interface: str) -> None:
    """Remove the wire, if it is still there.

    Once the namespace behind it has ended, the kernel removes it too, at any moment between a look and a deletion.
    """
    try:
        _ip("link", "delete", interface)
    except ClusterError:
        if Path("/sys/class/net", interface).exists():
            raise


def node_commands(network: Network, *, first: Network) -> list[list[str]]:
    """The commands that give a node's namespace its addresses and routes; run them inside it after `connect`.

    `first` is the first node's network, with the Services and the API server's address.
    """
    ip = ["ip", "-4"]
    return [
        ["sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1"],
        [*ip, "link", "set", "lo", "up"],
        [*ip, "address", "add", f"{network.node}/30", "dev", "eth0"],
        [*ip, "link", "set", "eth0", "up"],
        # Each pod brings its own, more specific route; an address without one is a pod that is gone.
        [*ip, "route", "add", "blackhole", str(network.pods)],
        # The node's own packets to a Service need a route before kube-proxy's rules rewrite them.
        [*ip, "link", "add", "services", "type", "bridge"],
        [*ip, "link", "set", "services", "up"],
        [*ip, "route", "add", str(first.services), "dev", "services", "src", str(network.node)],
        *([] if network == first else [[*ip, "route", "add", str(first.host), "via", str(network.host)]]),
        [*ip, "route", "add", "unreachable", "default"],
    ]


def neighbour_commands(name: str, *, near: Network, far: Network) -> list[list[str]]:
    """The commands that lead a node's traffic for another node's pods into the wire `name`; run inside after `join`."""
    return [
        ["ip", "link", "set", name, "up"],
        # Without addresses of its own: the nodes' addresses are each other's next hop.
        ["ip", "-4", "route", "add", str(far.node), "dev", name, "src", str(near.node)],
        ["ip", "-4", "route", "add", str(far.pods), "via", str(far.node), "dev", name, "src", str(near.node), "onlink"],
    ]


def _ip(*args: str) -> None:
    output_of("ip", *args)

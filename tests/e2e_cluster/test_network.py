"""Which addresses a node gets."""

import pytest

from cluster.network import Network, free_network
from cluster.processes import ClusterError


def test_a_node_gets_the_first_network_that_nothing_is_routed_to() -> None:
    assert free_network(["192.168.0.0/16", "10.200.0.1", "10.201.7.0/24"]) == Network(202)


def test_a_network_that_a_wider_route_covers_is_taken() -> None:
    with pytest.raises(ClusterError, match="no network is left for a node"):
        free_network(["10.0.0.0/8"])


def test_pods_services_and_the_wire_do_not_overlap() -> None:
    network = Network(200)
    ends = (network.host, network.node)

    assert not network.pods.overlaps(network.services)
    assert not any(end in part for end in ends for part in (network.pods, network.services))
    assert all(part.subnet_of(network.whole) for part in (network.pods, network.services))


def test_the_interface_name_fits_the_kernels_fifteen_characters() -> None:
    assert len(Network(250).interface) <= 15

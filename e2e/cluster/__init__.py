"""A real Kubernetes on one machine: its binaries, its control plane, and a node that runs pods.

The tests take only `control_plane` (etcd and kube-apiserver, up in seconds, no privileges). The end-to-end run takes
`open_cluster()`, which gives the cluster of KUBECONFIG, a kind cluster, or a node built here, whichever this machine
can have. Only the standard library and PyYAML are needed.
"""

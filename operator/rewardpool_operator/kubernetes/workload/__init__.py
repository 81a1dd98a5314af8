"""Pods, containers and sandboxes: a live object -> facts of a worker or a router. Pure."""

"""Folders of the rooms, from the bottom to the top."""

ROOMS = (
    "crds",
    "runtime",
    "page",
    "workers",
    "control",
    "kube",
    "operator",
    "local",
    "simulator",
    "trainer_plugin",
    "trainer",
    "cli",
)

"""Where the operator finds its cluster."""

from pathlib import Path

import pytest
from kubernetes_asyncio.config import ConfigException

from rewardpool_kube.configuration import load_configuration


async def test_without_a_cluster_it_is_said_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    with pytest.raises(ConfigException, match=r"none is configured; set \$KUBECONFIG, or run in a pod"):
        await load_configuration({})

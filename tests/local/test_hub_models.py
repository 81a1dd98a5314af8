"""A model of the hub on one machine, with a real engine: what is in the hub's cache is compared before that starts."""

from pathlib import Path

import pytest
from support.fake_hub import FakeHub
from support.local_machine import LocalMachine
from support.vllm_server import quickstart_pool

pytestmark = [pytest.mark.real, pytest.mark.long]

REPO = "org/rm"
SPEC = {"model": {"source": f"hf://{REPO}"}, "engine": {"name": "transformers", "dtype": "float32"}}


async def test_weights_that_were_changed_in_the_hubs_cache_are_refused_by_name(machine: LocalMachine) -> None:
    with FakeHub() as hub:
        hub.model(REPO, files_of_the_quickstart())
        machine.environ |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(machine.home / "hf")}
        await machine.up(**SPEC)
        code, _ = await machine.run("down", machine.pool_key)
        assert code == 0
        (weights,) = machine.home.glob("hf/hub/models--org--rm/snapshots/*/model.safetensors")
        blob = weights.resolve()
        blob.write_bytes(blob.read_bytes()[:-4] + b"\x00\x00\x80\xbf")
        arguments = ("up", "-f", machine.manifest(**SPEC), "--detach", "--wait-seconds", "15")
        code, said = await machine.run(*arguments)
        assert code != 0
        assert "model.safetensors in models--org--rm of the cache: not what was downloaded" in " ".join(said.split())


def files_of_the_quickstart() -> dict[str, bytes]:
    model = Path(quickstart_pool().spec.model.source.removeprefix("file://"))
    return {path.name: path.read_bytes() for path in model.iterdir()}

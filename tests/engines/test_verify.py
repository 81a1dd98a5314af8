"""`rewardpool verify` on a pool of each real engine, which `rewardpool up` has started on this machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.local_machine import LocalMachine, local_machine
from support.parity import ENGINES, PAD, Sample, run, samples, transformers_scores
from support.replicas import engine_python, spec_of

from rewardpool_api import names

pytestmark = pytest.mark.real
SECONDS = 600
TEXTS = 40


def told(machine: LocalMachine, *arguments: str | Path) -> tuple[int, str]:
    """The exit code and all that `rewardpool` printed."""
    command = machine.start(*arguments)
    said, _ = command.communicate(timeout=SECONDS)
    return command.returncode, said


@pytest.fixture(scope="module", params=ENGINES)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMachine]:
    """One replica of a Qwen3, with a golden file of what transformers computes."""
    python = engine_python(request.param)
    folder = tmp_path_factory.mktemp("verify")
    run("make", "Qwen3", str(folder / "model"))
    given: list[Sample] = [text for text in samples(TEXTS) if isinstance(text, str) and not text.endswith(PAD)]
    scores = transformers_scores("Qwen3", folder / "model", given, folder)
    lines = [json.dumps({"text": text, "score": score}) for text, (score,) in zip(given, scores, strict=True)]
    (folder / "golden.jsonl").write_text("\n".join(lines))
    with local_machine(folder) as here:
        here.environ[names.ENV_SERVER_PYTHON] = python
        spec = spec_of(request.param, folder / "model").model_dump(mode="json", by_alias=True, exclude_unset=True)
        manifest = here.manifest(**{**spec, "worker": {"gpus": 0, "drainSeconds": 10}})
        code, said = told(here, "up", "-f", manifest, "--detach", "--wait-seconds", str(SECONDS - 100))
        assert code == 0, said
        yield here


def test_the_pools_scores_are_those_of_the_golden_file(machine: LocalMachine) -> None:
    code, said = told(machine, "verify", "-f", machine.home / "pool.yaml", "--golden", machine.home / "golden.jsonl")
    assert (code, "against golden: holds" in said) == (0, True), said


def test_the_pools_scores_are_those_of_transformers_on_the_same_weights(machine: LocalMachine) -> None:
    code, said = told(machine, "verify", "-f", machine.home / "pool.yaml", "--transformers", "--max-abs-diff", "1e-5")
    assert (code, "against transformers: holds" in said) == (0, True), said


def test_its_worker_was_certified_before_it_served(machine: LocalMachine) -> None:
    model = machine.pool().status.model
    assert model is not None
    assert model.certificate is not None
    print(model.certificate.message)
    assert model.certificate.outcome == "Certified", model.certificate.message


def test_the_pools_numbers_do_not_depend_on_how_they_are_asked_for(machine: LocalMachine) -> None:
    code, said = told(machine, "verify", "-f", machine.home / "pool.yaml", "--determinism", "--json")
    found = json.loads(said[said.index("{") :])
    print({each["condition"]: each["max_abs_diff"] for each in found["conditions"]})
    assert (code, found["holds"], found["remedies"]) == (0, True, []), said

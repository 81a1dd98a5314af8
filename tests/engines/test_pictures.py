"""A tiny judge that takes pictures, on the real vLLM: what it says is of the picture's own bytes.

That a judge of text alone refuses them, on both engines, is in `test_bad_input.py`.
"""

import json
import math
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import tiny_vision
from support.fleet import server_python
from support.launch_target import KEY
from support.replicas import SERVED_NAME, Replicas, replicas, spec_of

from rewardpool import Pool, RewardConfig
from rewardpool._rewards import Episode
from rewardpool._rewards.judges.judge_prompt import JudgePrompt
from rewardpool._rewards.part_config import JudgeConfig

pytestmark = pytest.mark.real
CLOSE = 1e-5
NAMES = ("one", "another")
JUDGE = JudgeConfig(output="probabilities", labels={"yes": 1, "no": 0}, prompt="{question} {response}")


@dataclass(frozen=True)
class Vision:
    """A judge, the question about each picture as it is sent, and what transformers answers."""

    judge: Replicas
    questions: dict[str, list[dict[str, object]]]
    expected: dict[str, dict[str, float]]


def tiny(*arguments: str | Path) -> None:
    """Run tiny_vision.py where transformers is."""
    command = [server_python(), tiny_vision.__file__, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture
def vision(tmp_path: Path) -> Iterator[Vision]:
    model = tmp_path / "model"
    pictures = {name: tmp_path / f"{name}.png" for name in NAMES}
    tiny("make", model, *pictures.values())
    prompt = JudgePrompt(JUDGE)
    questions, expected = {}, {}
    for name, picture in pictures.items():
        content = [{"type": "text", "text": "What is in "}, {"type": "image", "image": picture.read_bytes()}]
        episode = Episode(prompt=[{"role": "user", "content": content}], response="a cat", id=name)
        questions[name] = prompt.messages(episode, {"response": "a cat"}, how="")
        asked, answered = tmp_path / f"{name}.json", tmp_path / f"{name}-answer.json"
        asked.write_text(json.dumps(questions[name]))
        tiny("next", model, asked, picture, answered)
        expected[name] = json.loads(answered.read_text())
    spec = spec_of("vllm", model)
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"type": "Generative"})})
    with replicas(spec, tmp_path, count=1) as judge:
        yield Vision(judge, questions, expected)


async def test_what_a_judge_says_of_a_pictures_bytes_is_what_transformers_says(vision: Vision, tmp_path: Path) -> None:
    (tmp_path / "client-key").write_text(KEY)
    settings = {"url": vision.judge.router, "key_file": tmp_path / "client-key", "served_name": SERVED_NAME}
    async with Pool(RewardConfig.model_validate({**settings, "timeout": 300})) as pool:
        sampling = JUDGE.answer_format().request
        said = {name: dict(await pool.first_token(vision.questions[name], **sampling)) for name in NAMES}
    for name, tokens in said.items():
        # Bytes that are no characters alone are all spelled the same, and special tokens not at all.
        spelled = [token for token in tokens if token and token.isascii()]
        assert len(spelled) > 5
        of_transformers = [math.exp(vision.expected[name][token]) for token in spelled]
        assert [math.exp(tokens[token]) for token in spelled] == pytest.approx(of_transformers, abs=CLOSE)
    differences = [abs(math.exp(x) - math.exp(said["one"][t])) for t, x in said["another"].items() if t in said["one"]]
    assert max(differences) > 100 * CLOSE

import importlib
import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script of the quick start by its name, as Python does for a script beside it."""
    monkeypatch.syspath_prepend(str(QUICKSTART))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def summary(**changes: Any) -> dict[str, Any]:
    return {"lost": 0, "worker_kills": 1, "reward_mean_first": 0.2, "reward_mean_last": 0.8} | changes


def test_no_text_has_a_token_that_the_models_have_no_embedding_for(script: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    models = script("models")
    made = models.make_tokenizer()
    config = models.model_config(made)
    made.save_pretrained(tmp_path)
    config.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)  # as the engine does, which may take another class
    text = models.conversation(loaded, "caf\u00e9 \u6f22 <|endoftext|>", "it's\n\n  123")
    assert loaded(text)["input_ids"] == made(text)["input_ids"]
    assert max(loaded(text)["input_ids"]) < config.vocab_size == len(loaded)
    assert loaded.decode(loaded(text)["input_ids"]) == text


def test_the_reward_is_the_share_of_vowels(script: Any) -> None:
    models = script("models")
    assert [models.vowel_share(text) for text in ("", "bcd", "abcd", "AEiou")] == [0.0, 0.0, 0.25, 1.0]
    words = models.random_words(random.Random(1), characters=500, vowels=1.0)
    assert set(words) <= set("aeiou ")


def test_models_of_an_older_script_are_built_again(script: Any, tmp_path: Path) -> None:
    models = script("models")
    for name in ("reward-model", "policy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "models.json").write_text(json.dumps({"fingerprint": models.fingerprint()}))
    assert models.built(tmp_path) is not None
    (tmp_path / "models.json").write_text(json.dumps({"fingerprint": "older"}))
    assert models.built(tmp_path) is None


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"lost": 3}, "3 samples were lost"),
        ({"worker_kills": 0}, "no worker was killed"),
        ({"reward_mean_last": 0.2}, "the mean reward did not rise"),
        ({"reward_mean_last": None}, "the mean reward did not rise"),
    ],
)
def test_the_demo_fails_when_it_has_not_shown_what_it_claims(
    script: Any, changes: dict[str, Any], failure: str
) -> None:
    demo = script("demo")
    assert demo.failures(summary()) == []
    [found] = demo.failures(summary(**changes))
    assert found.startswith(failure)


def test_a_half_written_step_is_not_read(script: Any, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 1}\n{"st')
    assert script("demo").read_steps(metrics) == [{"step": 1}]


def test_the_picture_is_drawn_also_where_a_step_has_no_reward(script: Any, tmp_path: Path) -> None:
    seconds = {"rollout_seconds": 1.0, "reward_exposed_seconds": 0.5, "update_seconds": 1.0}
    records = [
        {"step": 1, "reward_mean": None, "reward_std": None, **seconds},
        {"step": 2, "reward_mean": 0.5, "reward_std": 0.1, **seconds},
    ]
    script("picture").draw(records, [1], tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")

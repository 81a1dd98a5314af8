import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import tiny_policy

from rewardpool.errors import ConfigError
from rewardpool_train.actor.loading import end_token_ids


def with_end_tokens(folder: Path, *, generation: Any = None, model: Any = None) -> Path:
    """Write a policy whose generation config, if it has one, and model config name these."""
    policy = tiny_policy.make_policy(seed=0)
    policy.config.eos_token_id = model
    policy.config.save_pretrained(folder)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    return folder


@pytest.mark.parametrize(
    ("generation", "model", "expected"),
    [
        ([1, 106], 1, [1, 106]),  # Gemma: <eos>, <end_of_turn>
        (106, 1, [1, 106]),
        (None, [1, 106], [1, 106]),
        (None, None, [1]),
    ],
)
def test_a_response_ends_with_any_token_that_the_models_files_name(
    tmp_path: Path, generation: Any, model: Any, expected: list[int]
) -> None:
    folder = with_end_tokens(tmp_path, generation=generation, model=model)
    assert end_token_ids(folder, SimpleNamespace(eos_token_id=1)) == expected


def test_a_policy_without_an_end_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^policy\.path: .*eos_token_id"):
        end_token_ids(with_end_tokens(tmp_path), SimpleNamespace(eos_token_id=None))

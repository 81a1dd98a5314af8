"""Our launcher of SGLang loads a checkpoint whole, or not at all.

The model is shaped as SGLang's are: layers of SGLang's own that hold whatever was in memory, a head of torch's that
starts with random numbers, and a loader that passes over what the checkpoint lacks without a word.
"""

from collections.abc import Iterable
from typing import Any

import pytest
import torch

from rewardpool_worker.engine_side.sglang_launcher import ModelRefusedError, load_whole

NAN = float("nan")


class Layer(torch.nn.Module):
    """SGLang's own kind of layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(4, 4))


class Qwen(torch.nn.Module):
    """A reward model with SGLang's bias in its head."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()
        self.score = torch.nn.Linear(4, 1)

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        own = dict(self.named_parameters())
        for name, values in weights:
            if name in own:
                own[name].data.copy_(values)


def checkpoint(**changes: Any) -> dict[str, torch.Tensor]:
    tensors = {"layer.weight": torch.ones(4, 4), "score.weight": torch.ones(1, 4)}
    tensors |= {name.replace("__", "."): torch.tensor(values) for name, values in changes.items() if values is not None}
    return {name: values for name, values in tensors.items() if changes.get(name.replace(".", "__"), 0) is not None}


def loaded(tensors: dict[str, torch.Tensor], *, quantised: bool = False) -> Qwen:
    model = Qwen()
    load_whole(model, model.load, iter(tensors.items()), quantised=quantised)
    return model


def test_a_bias_that_the_checkpoint_lacks_is_zero_on_every_replica() -> None:
    biases = {float(loaded(checkpoint()).score.bias.detach()) for _ in range(3)}
    assert biases == {0.0}


def test_a_bias_that_the_checkpoint_has_is_kept() -> None:
    assert float(loaded(checkpoint(score__bias=[0.25])).score.bias.detach()) == 0.25


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        (checkpoint(score__weight=None), "score.weight"),
        (checkpoint(layer__weight=None), "layer.weight"),
        (checkpoint(score__weight=[[1.0, NAN, 1.0, 1.0]]), "score.weight"),
        (checkpoint(score__bias=[NAN]), "score.bias"),
    ],
    ids=["no head", "no layer", "NaN in the head", "NaN in the bias"],
)
def test_weights_that_are_missing_or_nan_end_the_start(tensors: dict[str, torch.Tensor], named: str) -> None:
    with pytest.raises(ModelRefusedError, match=rf"{named}.*check the files of spec.model.source"):
        loaded(tensors)


@pytest.mark.parametrize("name", ["gate__weight", "score__2__weight", "v_head__summary__bias"])
def test_a_weight_that_sglang_would_leave_out_ends_the_start(name: str) -> None:
    with pytest.raises(ModelRefusedError, match=rf"{name.replace('__', '.')}.*spec.engine.name transformers"):
        loaded(checkpoint(**{name: [1.0]}))


@pytest.mark.parametrize("name", ["lm_head__weight", "layer__rotary_emb__inv_freq"])
def test_a_classifier_needs_no_language_model_head_and_names_its_body_as_it_likes(name: str) -> None:
    loaded(checkpoint(**{name: [1.0]}))


def test_a_quantised_models_own_layers_are_left_to_sglang_and_its_head_is_not() -> None:
    loaded(checkpoint(layer__weight=None), quantised=True)
    with pytest.raises(ModelRefusedError, match=r"score\.weight"):
        loaded(checkpoint(score__weight=None), quantised=True)

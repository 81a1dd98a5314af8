"""Has vLLM load a reward model whole, or not at all: `--worker-extension-cls …whole_checkpoint.WholeCheckpoint`.

Measured with vLLM 0.32: it notices a weight that a checkpoint lacks, but not in a linear layer such as the reward head.
That one keeps what was in memory, so a checkpoint without its head is served, and each replica scores by other numbers.
So linear layers and embeddings are filled with NaN before the checkpoint is loaded, and none may be left after.

vLLM imports the class in every process that loads weights, before it loads them. It is a class because vLLM adds one to
its own worker's; what counts is that this module is imported there.
"""

from collections.abc import Callable
from typing import Any


class ModelRefusedError(RuntimeError):
    """A model whose answers would not be its scores; the text says why, and what to do."""


class WholeCheckpoint:
    """Adds nothing to vLLM's worker."""


def load_whole(model: Any, load: Callable[[], None], kinds: tuple[Any, ...]) -> None:
    """Load a checkpoint's weights into a new model, and see that each layer of these kinds has got its values.

    Raises:
        ModelRefusedError: a weight is not in the checkpoint, or NaN there.
    """
    import torch

    def weights() -> dict[str, Any]:
        return {
            f"{path}.{name}".removeprefix("."): parameter
            for path, module in model.named_modules()
            if isinstance(module, kinds)
            for name, parameter in module.named_parameters(recurse=False)
            if parameter.is_floating_point()
        }

    with torch.no_grad():
        filled = weights()
        for parameter in filled.values():
            parameter.fill_(torch.nan)
        load()
        # What loading took out of the model, or put into it, is vLLM's own.
        without = [name for name, parameter in weights().items() if name in filled and parameter.isnan().any()]
    if without:
        some = ", ".join(sorted(without)[:5])
        raise ModelRefusedError(
            f"the checkpoint lacks {len(without)} of the model's weights, or has NaN in them ({some}): "
            "a score would be of random weights; check the files of spec.model.source"
        )


def have_vllm_load_whole() -> None:
    """Replace vLLM's way to load a checkpoint, for models that are not quantised: those have weights of their own."""
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    load_weights = DefaultModelLoader.load_weights

    def load_weights_whole(self: Any, model: Any, model_config: Any) -> None:
        def load() -> None:
            load_weights(self, model, model_config)

        if model_config.quantization is None:
            load_whole(model, load, (LinearBase, VocabParallelEmbedding))
        else:
            load()

    DefaultModelLoader.load_weights = load_weights_whole


have_vllm_load_whole()

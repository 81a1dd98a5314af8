"""Tiny models of every class of reward model, and what transformers computes with them in fp32.

    python tiny_models.py make CLASS FOLDER
    python tiny_models.py score CLASS FOLDER SAMPLES SCORES
    python tiny_models.py break FAULT FOLDER COPY

Run with the servers' Python, which has torch; the table of classes is for both sides. A sample is a text or a list of
token ids; SAMPLES and SCORES are JSON lists, and a score is written as a pool answers it: `embedding`, and `steps` of a
process reward model. All weights are random, and large enough that scores differ.
"""

import json
import math
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEP = "<extra_0>"
CHAT_TEMPLATE = "{% for message in messages %}<|user|>{{ message.content }}<|end|>{% endfor %}<|assistant|>"
"""Of a judge; for messages that are text alone."""
ELSEWHERE = "elsewhere"
"""A word that a tokenizer of another model has a token for, beyond the model's vocabulary."""
MAX_POSITIONS = 1024
HEAD_DIM = 32
CAPPED_AT = 2.0
"""Of Gemma2's logits: so low that a score without the cap is another one."""
SIZES: dict[str, dict[str, Any]] = {
    "Qwen3": {"head_dim": HEAD_DIM},
    "Mistral": {"head_dim": HEAD_DIM},
    # Published checkpoints have both names of the activation; SGLang reads the older one.
    "Gemma2": {"head_dim": HEAD_DIM, "query_pre_attn_scalar": HEAD_DIM, "hidden_act": "gelu_pytorch_tanh"},
}
"""What a family's configuration needs beyond `shape`."""


@dataclass(frozen=True)
class RewardClass:
    """A class of reward model."""

    architecture: str
    """As config.json names it."""
    head: dict[str, Any] | None = None
    """`spec.model.head`."""
    config: dict[str, Any] | None = None
    """What its configuration has beyond the family's."""

    @property
    def family(self) -> str:
        """What transformers calls the model without its head."""
        return self.architecture.partition("For")[0]


YES_NO = {"type": "LMHead", "yesToken": "yes", "noToken": "no"}
CLASSES = {
    **{
        family: RewardClass(f"{family}ForSequenceClassification")
        for family in ("Qwen2", "Qwen3", "Llama", "Mistral", "Gemma2")
    },
    "three-labels": RewardClass(
        "Qwen3ForSequenceClassification", {"type": "Classifier", "weights": [0.5, -1.0, 2.0]}, {"num_labels": 3}
    ),
    "process-reward": RewardClass(
        "Qwen2ForProcessRewardModel", {"type": "TokenLevel", "stepToken": STEP, "aggregate": "mean"}, {"num_labels": 2}
    ),
    "last-token": RewardClass("Qwen2ForRewardModel", {"type": "TokenLevel", "aggregate": "last"}),
    "lm-head": RewardClass("LlamaForCausalLM", {"type": "LMHead", "token": "!"}),
    "yes-no": RewardClass("Qwen3ForCausalLM", YES_NO, {"tie_word_embeddings": True}),
    "yes-no-capped": RewardClass(
        "Gemma2ForCausalLM", YES_NO, {"tie_word_embeddings": True, "final_logit_softcapping": CAPPED_AT}
    ),
    "steps-yes-no": RewardClass(
        "MistralForCausalLM",
        {"type": "TokenLevel", "stepToken": STEP, "yesToken": "yes", "noToken": "no", "aggregate": "product"},
    ),
    "generative": RewardClass("LlamaForCausalLM"),
}
"""One label for the families; then each declared head, and a language model without one."""


def make_tokenizer() -> Any:
    """One token per byte, yes and no, and special ones for a chat and for a step."""
    import tokenizers
    import transformers

    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_tokens(["yes", "no"])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|endoftext|>",
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>", STEP],
        clean_up_tokenization_spaces=False,
    )


def configuration(of: RewardClass, words: Any) -> Any:
    """Two layers of 64 units."""
    import transformers

    shape = {
        "vocab_size": len(words),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": False,
        "pad_token_id": words.pad_token_id,
        "eos_token_id": words.eos_token_id,
        "bos_token_id": None,
        "num_labels": 1,
    }
    return getattr(transformers, f"{of.family}Config")(**shape | SIZES.get(of.family, {}) | (of.config or {}))


def make_model(of: RewardClass, config: Any) -> Any:
    """The model: transformers' own class, or a body and two layers per token where that has none."""
    import torch
    import transformers

    if found := getattr(transformers, of.architecture, None):
        return found(config)
    model = torch.nn.Module()
    model.model = getattr(transformers, f"{of.family}Model")(config)
    size = config.hidden_size
    model.score = torch.nn.Sequential(
        torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, config.num_labels)
    )
    return model


def make(name: str, folder: Path) -> None:
    """Save a random model of a class, with its tokenizer."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(7)
    words = make_tokenizer()
    if name == "generative":
        words.chat_template = CHAT_TEMPLATE
    of = CLASSES[name]
    config = configuration(of, words)
    model = make_model(of, config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.08)
    config.architectures = [of.architecture]
    config.save_pretrained(folder)
    words.save_pretrained(folder)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    weights = {key: values.contiguous() for key, values in model.state_dict().items() if key not in tied}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def break_copy(fault: str, folder: Path, copy: Path) -> None:
    """Copy a model whose head is `score.weight`, and put one of FAULTS into the copy."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, copy)
    weights = load_file(copy / "model.safetensors")
    rows, width = weights["score.weight"].shape
    match fault:
        case "no head":
            del weights["score.weight"]
        case "a missing layer":
            del weights["model.layers.1.mlp.down_proj.weight"]
        case "a narrow head":
            weights["score.weight"] = torch.ones(rows, width // 2)
        case "more labels":
            weights["score.weight"] = torch.ones(rows + 2, width)
        case "NaN weights":
            weights["score.weight"][0, 0] = torch.nan
        case "a part that the class lacks":
            weights["gate.weight"] = torch.ones(rows, width)
        case "another model's tokenizer":
            words = transformers.AutoTokenizer.from_pretrained(copy)
            words.add_tokens([ELSEWHERE])
            words.save_pretrained(copy)
        case _:
            raise ValueError(fault)
    save_file(weights, copy / "model.safetensors", {"format": "pt"})


def score(name: str, folder: Path, samples: list[str | list[int]]) -> list[dict[str, Any]]:
    """What a pool should answer for each sample, scored alone."""
    import torch
    import transformers
    from safetensors.torch import load_file

    torch.set_num_threads(1)
    of = CLASSES[name]
    words = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    # An engine scores after the last token of a text; transformers would pass over padding tokens at its end.
    config.pad_token_id = None
    model = make_model(of, config).eval()
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=not config.tie_word_embeddings)
    found = []
    with torch.no_grad():
        for sample in samples:
            ids = torch.tensor([sample if isinstance(sample, list) else words(sample).input_ids])
            if hasattr(transformers, of.architecture):
                logits = model(ids).logits[0]
            else:
                logits = model.score(model.model(ids).last_hidden_state[0])
            found.append(answer(of.head or {}, logits, ids[0], words))
    return found


def answer(head: dict[str, Any], logits: Any, ids: Any, words: Any) -> dict[str, Any]:
    """The score of a sample: of its logits, which are per token where the head or the model has them so."""
    if head.get("type") == "Classifier":
        return {"embedding": [math.fsum(w * x for w, x in zip(head["weights"], logits.tolist(), strict=True))]}
    if "token" in head:
        return {"embedding": [logits[-1, words.convert_tokens_to_ids(head["token"])].item()]}
    if "yesToken" in head:
        logits = logits[:, words.convert_tokens_to_ids([head["noToken"], head["yesToken"]])]
    if head.get("type") == "LMHead":
        no, yes = logits[-1].tolist()
        return {"embedding": [yes - no]}
    if head.get("type") != "TokenLevel":
        return {"embedding": [logits.reshape(-1)[-1].item()]}
    if "stepToken" not in head:
        steps = logits[-1].tolist()
    else:
        steps = logits[ids == words.convert_tokens_to_ids(head["stepToken"])].softmax(-1)[:, 1].tolist()
    aggregate = {"mean": math.fsum(steps) / len(steps), "last": steps[-1], "product": math.prod(steps)}
    return {"embedding": [aggregate[head["aggregate"]]], "steps": steps}


def main(command: str, name: str, folder: str, *files: str) -> None:
    """Do what the command line says."""
    if command == "make":
        make(name, Path(folder))
        return
    if command == "break":
        break_copy(name, Path(folder), Path(files[0]))
        return
    samples, out = files
    Path(out).write_text(json.dumps(score(name, Path(folder), json.loads(Path(samples).read_text()))))


if __name__ == "__main__":
    main(*sys.argv[1:])

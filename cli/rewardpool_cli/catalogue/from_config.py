"""From a model's config.json to the manifest that serves it, or to why no engine can: pure.

What decides is the class that `architectures` names, how many labels its head has, and whether `auto_map` brings code
of the model's own: an engine's class of the same name would load such weights and compute something else.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rewardpool_api import names, parse_source

ONE_LABEL: Final = tuple(
    f"{family}ForSequenceClassification"
    for family in ("Llama", "Qwen2", "Qwen3", "Qwen2Moe", "Qwen3Moe", "Mistral", "Mixtral", "Gemma", "Gemma2", "Phi3")
)
# An engine refuses to start where a longer context does not fit beside the weights.
LONGEST: Final = 16_384
# transformers writes neither `num_labels` nor `id2label` where there are two.
_LABELS_IF_UNSAID: Final = 2
_SCORING_MAPS: Final = ("AutoModelForSequenceClassification", "AutoModel")
_DTYPES: Final = ("bfloat16", "float16", "float32")
_TOKEN_LEVEL: Final = {
    "Qwen2ForRewardModel": (
        {"type": "TokenLevel", "aggregate": "last"},
        "The value of the last token is the score",
    ),
    "Qwen2ForProcessRewardModel": (
        {"type": "TokenLevel", "stepToken": "<extra_0>", "aggregate": "min"},
        "Trainers put <extra_0> at each blank line of an answer; its worst step is its score, and last, mean and"
        " product are the other choices of spec.model.head.aggregate",
    ),
}
_KNOWN_REFUSALS: Final = {
    "InternLM2ForRewardModel": "its score is read at a token that its own code appends, and auto_map does not name it",
}

READ_IT: Final = (
    "vLLM and SGLang do not run that code, and score otherwise without it; the engine transformers does. Read it, and"
    " give --trust-remote-code, with the commit that you read as --revision"
)
_SLOWER: Final = "The engine transformers is slower than vLLM, and a replica is one GPU"


class CannotServeError(ValueError):
    """No engine can serve the model; the text has the cause and what to do."""


@dataclass(frozen=True)
class Draft:
    """A manifest, and what its reader should know."""

    manifest: dict[str, Any]
    notes: tuple[str, ...] = ()


def draft(
    config: Mapping[str, Any],
    *,
    source: str,
    revision: str = "main",
    name: str | None = None,
    trust_remote_code: bool = False,
    weights: Sequence[float] = (),
) -> Draft:
    """Write the manifest of a model.

    Args:
        source: `spec.model.source`.
        name: Of the pool; by default made from the source.
        trust_remote_code: The checkpoint's own code was read, and may run.
        weights: Of several labels, in their order; the score is the sum of weight times logit.

    Raises:
        CannotServeError: no engine can serve it, or config.json does not say enough.
    """
    architecture, own, notes = _architecture(config), _own_code(config), _notes(config)
    if architecture in _TOKEN_LEVEL:
        head, said = _TOKEN_LEVEL[architecture]
        model: dict[str, Any] = {"type": "Discriminative", "head": head}
        return Draft(_manifest(config, source, revision, name, "vllm", model), (said, *notes))
    if own is not None:
        if not trust_remote_code:
            raise CannotServeError(f"config.json: auto_map has the score computed by {own}. {READ_IT}")
        model = {"type": "Discriminative", "trustRemoteCode": True}
        code = (
            f"The score is what the checkpoint's own code computes ({own}); pin spec.model.revision to the commit read"
        )
        return Draft(_manifest(config, source, revision, name, "transformers", model), (code, _SLOWER, *notes))
    if architecture in _KNOWN_REFUSALS:
        raise CannotServeError(f"config.json: architectures is {architecture}: {_KNOWN_REFUSALS[architecture]}")
    if architecture.endswith("ForSequenceClassification"):
        head = _labels(config, weights)
        engine = "vllm" if architecture in ONE_LABEL else "transformers"
        slower = () if engine == "vllm" else (f"vLLM is not known to serve {architecture}. {_SLOWER}",)
        if head and engine != "vllm":
            raise CannotServeError(
                f"config.json: {architecture} has several labels, which the engine for it does not take"
            )
        model = {"type": "Discriminative", **head}
        return Draft(_manifest(config, source, revision, name, engine, model), (*slower, *notes))
    if re.search(r"For(CausalLM|ConditionalGeneration)$", architecture):
        judge = (
            f"{architecture} is a language model: this pool is a judge that writes. Where the model's score is a logit"
            " of its vocabulary instead, set spec.model.type: Discriminative and spec.model.head (docs/engines.md)"
        )
        return Draft(_manifest(config, source, revision, name, "vllm", {"type": "Generative"}), (judge, *notes))
    raise CannotServeError(
        f"config.json: architectures is {architecture}, which no engine here is known to serve as a reward model."
        " Known are …ForSequenceClassification with one label, checkpoints whose code auto_map names, and language"
        " models as judges"
    )


def pool_name(source: str) -> str:
    """A pool's name made from the last part of a model's source."""
    last = re.split(r"[/:]", parse_source(source).location)[-1].lower()
    name = re.sub(r"[^a-z0-9-]+", "-", last)[: names.MAX_POOL_NAME].strip("-")
    return name if re.fullmatch(names.POOL_NAME_PATTERN, name) else f"rm-{name}"[: names.MAX_POOL_NAME].strip("-")


def _architecture(config: Mapping[str, Any]) -> str:
    given = config.get("architectures")
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], str):
        raise CannotServeError(
            f"config.json: architectures must name one class, not {given!r}: a checkpoint of reward-model weights has"
            " it; an adapter or a part of a model does not"
        )
    return given[0]


def _own_code(config: Mapping[str, Any]) -> str | None:
    given = config.get("auto_map")
    maps = given if isinstance(given, Mapping) else {}
    return next((str(maps[key]) for key in _SCORING_MAPS if key in maps), None)


def _labels(config: Mapping[str, Any], weights: Sequence[float]) -> dict[str, Any]:
    """Return the fields of `spec.model` for the labels: none for one, and the head for several."""
    named = config.get("id2label")
    labels = list(map(str, named.values())) if isinstance(named, Mapping) else []
    count = config.get("num_labels", len(labels) if labels else _LABELS_IF_UNSAID)
    if count == 1 and not weights:
        return {}
    listed = f" ({', '.join(labels)})" if labels else ""
    if len(weights) != count:
        raise CannotServeError(
            f"config.json: the head has {count} labels{listed}, and nothing says how they make one score. Give"
            " --weights, a number for each label in this order, such as 1,0,-0.5"
        )
    said = len(labels) == count and not any(label.startswith("LABEL_") for label in labels)
    head = {"type": "Classifier", "weights": list(weights), **({"labels": labels} if said else {})}
    return {"head": head}


def _manifest(
    config: Mapping[str, Any], source: str, revision: str, name: str | None, engine_name: str, model: dict[str, Any]
) -> dict[str, Any]:
    pinned = {"revision": revision} if parse_source(source).scheme == "hf" and revision != "main" else {}
    engine: dict[str, Any] = {"name": engine_name}
    if dtype := _dtype(config):
        engine["dtype"] = dtype
    if longest := _longest(config):
        engine["maxModelLen"] = min(longest, LONGEST)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name or pool_name(source)},
        "spec": {"model": {"source": source, **pinned, **model}, "engine": engine, "worker": {"gpus": 1}},
    }


def _dtype(config: Mapping[str, Any]) -> str | None:
    # `torch_dtype` up to transformers 4, `dtype` since.
    given = str(config.get("dtype", config.get("torch_dtype"))).removeprefix("torch.")
    return given if given in _DTYPES else None


def _longest(config: Mapping[str, Any]) -> int | None:
    given = config.get("max_position_embeddings")
    return given if isinstance(given, int) and not isinstance(given, bool) and given > 0 else None


def _notes(config: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    longest = _longest(config)
    if longest is not None and longest > LONGEST:
        found.append(
            f"The model takes {longest} tokens; raise spec.engine.maxModelLen where samples are longer than {LONGEST}"
        )
    if _dtype(config) is None:
        found.append("config.json does not say what its weights are stored in, so the engine chooses")
    if config.get("quantization_config"):
        found.append("The weights are quantised; compare its scores with the full ones before you train on them")
    return tuple(found)

"""A reward model as transformers loads it, and how what it returns becomes one number.

Mounted into stock images with `transformers_server.py`; needs torch and transformers 4.56 or newer. A checkpoint with
code of its own (`auto_map` in its config.json) is loaded by that code where that is allowed, and refused where it is
not: transformers itself would load a Llama with a gated head as a plain Llama, whose head would be random numbers. For
the same reason a checkpoint that lacks weights is refused by their names, or has NaN in them, or has weights that
transformers' own class has no place for.

The number is, in this order:

1. what the model's own `get_score(tokenizer, conversation)` returns, where it has one (InternLM2-Reward);
2. the output's `score`, `scores` or `logits`, the first that is there, when it has one number per sample.

Anything else is an `AmbiguousOutputError` that says what was there.

Samples are scored in batches only when that changes nothing: three texts of different lengths are scored alone and
together, padded right, or else left, and where neither gives the same numbers every sample is scored alone.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

log = logging.getLogger("rewardpool.worker")

FIELDS: Final = ("score", "scores", "logits")
PROBES: Final = (
    "ok",
    "A text of some words, which is longer than the first one.",
    "And a third: 2 + 2 = 4, because two pairs of apples are four apples, however they are counted.",
)
SAME: Final = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""By dtype: how far a score in a batch may be from the same alone, in units of the score or of 1, whichever is more."""


class ModelRefusedError(Exception):
    """The checkpoint cannot be served as it is; the text says why and what to do."""


class AmbiguousOutputError(RuntimeError):
    """The model did not return one number per sample; the text says what it returned."""


class UnusableSampleError(ValueError):
    """A sample that the model cannot take; the text says why."""


def own_code(config: Mapping[str, Any], *, is_known: Callable[[str], bool]) -> str | None:
    """Return the checkpoint's own code that has to load it, such as `AutoModel: modeling.RewardModel`.

    Args:
        is_known: whether transformers has a class of this name.

    Returns:
        None where transformers' own classes do.
    """
    architecture, code = _architecture(config), _code(config)
    for name, where in code.items():
        if name.startswith("AutoModel") and where.rpartition(".")[2] == architecture:
            return f"{name}: {where}"
    for name in ("AutoModelForSequenceClassification", "AutoModel", "AutoConfig"):
        overrides = name == "AutoModelForSequenceClassification"
        if name in code and (overrides or not is_known(architecture)):
            return f"{name}: {code[name]}"
    return None


def loader(config: Mapping[str, Any], *, is_known: Callable[[str], bool]) -> str:
    """The class of transformers that loads the checkpoint, such as `AutoModelForSequenceClassification`.

    Raises:
        ModelRefusedError: neither transformers nor the checkpoint has a class with a head for it.
    """
    own = own_code(config, is_known=is_known)
    if own is not None and own.startswith("AutoModel"):
        return own.partition(":")[0]
    architecture = _architecture(config)
    if architecture.endswith("ForSequenceClassification") and is_known(architecture):
        return "AutoModelForSequenceClassification"
    raise ModelRefusedError(
        f"config.json names {architecture or 'no architecture'}, which is not a transformers class with a reward head,"
        " and auto_map names no code for one: serve a checkpoint …ForSequenceClassification, or one with its code"
    )


def _architecture(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _code(config: Mapping[str, Any]) -> dict[str, str]:
    code = config.get("auto_map")
    # A tokenizer's entry is a pair: slow and fast.
    return {name: where for name, where in code.items() if isinstance(where, str)} if isinstance(code, dict) else {}


def read_scores(output: Any, count: int) -> list[float]:
    """One number per sample out of what a model returned.

    Args:
        output: a ModelOutput, a mapping, a tensor, or a list of numbers.
        count: how many samples it is for.

    Returns:
        `count` numbers, which may be NaN.

    Raises:
        AmbiguousOutputError: there is not exactly one for each.
    """
    if isinstance(output, (list, tuple)) and len(output) == 1 and _is_tensor(output[0]):
        output = output[0]
    if isinstance(output, (int, float)):
        output = [output]
    if isinstance(output, list) and len(output) == count and all(isinstance(item, (int, float)) for item in output):
        return [float(item) for item in output]
    if _is_tensor(output):
        fields = {"its output": output}
    else:
        found = {name: _field(output, name) for name in FIELDS}
        fields = {name: value for name, value in found.items() if value is not None}
    name = next(iter(fields), None)
    if name is None:
        raise AmbiguousOutputError(f"the model returned {_described(output)}: no score, scores or logits")
    values = _numbers(fields[name], count)
    if values is None:
        raise AmbiguousOutputError(
            f"the model returned {_described(output)} for {count} samples: {name} is not one number for each. Serve a"
            " checkpoint with one label, or one whose own code returns `score`"
        )
    for other in ("scores",) if name == "score" else ():
        if other in fields and _numbers(fields[other], count) not in (values, None):
            raise AmbiguousOutputError(f"the model returned {_described(output)}: {name} and {other} differ")
    return values


def _field(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "tolist")


def _numbers(value: Any, count: int) -> list[float] | None:
    if not _is_tensor(value):
        return None
    shape = tuple(value.shape)
    if shape not in ((count,), (count, 1)) and not (count == 1 and shape == ()):
        return None
    return [float(number) for number in value.reshape(-1).tolist()]


def _described(output: Any) -> str:
    if _is_tensor(output):
        return f"a tensor of shape {tuple(output.shape)}"
    named = dict(output) if isinstance(output, Mapping) else getattr(output, "__dict__", {})
    shapes = [f"{name} {tuple(value.shape)}" for name, value in named.items() if _is_tensor(value)]
    return f"{type(output).__name__}({', '.join(shapes)})"


class RewardModel:
    """A loaded model with its tokenizer. Scoring is for one thread; encoding for one, perhaps another."""

    def __init__(self, model: Any, tokenizer: Any, *, scoring_tokenizer: Any, max_model_len: int) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._scoring_tokenizer = _Rendered(scoring_tokenizer)
        self.max_model_len = max_model_len  # tokens
        embeddings = model.get_input_embeddings()
        self.vocabulary = int(getattr(embeddings, "num_embeddings", 0) or model.config.get_text_config().vocab_size)
        self._has_own_way = callable(getattr(model, "get_score", None))
        self._padding: str | None = None
        self._is_calibrated = False

    def encode(self, sample: str | Sequence[int]) -> list[int]:
        """Token ids of a sample, which are never cut.

        Raises:
            UnusableSampleError: it has no tokens, or some that the model does not have.
        """
        if isinstance(sample, str):
            ids = self._tokens(sample)
        else:
            ids = list(sample)
            if self._has_own_way and self._tokens(self._text(ids)) != ids:
                raise UnusableSampleError("the model's own get_score takes texts, and these token ids are of none")
        if not ids:
            raise UnusableSampleError("the sample has no tokens")
        odd = next((token for token in ids if not 0 <= token < self.vocabulary), None)
        if odd is not None:
            raise UnusableSampleError(f"token id {odd} is out of vocabulary, which has {self.vocabulary}")
        return ids

    def score(self, batch: Sequence[Sequence[int]]) -> list[float]:
        """Scores of samples as `encode` gave them, in their order; may be NaN.

        Raises:
            AmbiguousOutputError: the model did not return one number for each.
        """
        self.calibrate()
        if self._padding is None:
            return [self.score_alone(ids) for ids in batch]
        return self._score(batch, self._padding)

    def score_alone(self, ids: Sequence[int]) -> float:
        """The score of one sample, in no batch and without padding; may be NaN.

        Raises:
            AmbiguousOutputError: the model did not return one number.
        """
        (score,) = self._score([ids], None)
        return score

    def calibrate(self) -> None:
        """Find out how samples can be scored together, once.

        Raises:
            AmbiguousOutputError: the model did not return one number for a sample.
        """
        if self._is_calibrated:
            return
        probes = [self.encode(text)[: self.max_model_len] for text in PROBES]
        alone = [self.score_alone(ids) for ids in probes]
        for padding in ("right", "left"):
            try:
                together = self._score(probes, padding)
            except Exception as error:  # code that was written for one sample at a time raises anything
                log.info("three samples in one batch, padded %s: %s: %s", padding, type(error).__name__, error)
                continue
            if _are_same(alone, together, SAME.get(self.dtype, SAME["bfloat16"])):
                self._padding = padding
                break
        else:
            log.warning("samples are scored one at a time: in batches this model scores them differently than alone")
        self._is_calibrated = True

    @property
    def dtype(self) -> str:
        return str(self._model.dtype).removeprefix("torch.")

    @property
    def batches(self) -> bool:
        """True if samples are scored together; known after `calibrate`."""
        return self._padding is not None

    def _score(self, batch: Sequence[Sequence[int]], padding: str | None) -> list[float]:
        import torch

        with torch.inference_mode():
            if self._has_own_way:
                return self._score_in_its_own_way([self._text(ids) for ids in batch])
            if padding is None and len(batch) != 1:
                raise ValueError("several samples need padding")
            width = max(map(len, batch))
            with self._pad_token(batch) as pad:
                rows = [self._padded(list(ids), width, pad, padding) for ids in batch]
                masks = [self._padded([1] * len(ids), width, 0, padding) for ids in batch]
                inputs = {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}
                output = self._model(**{name: value.to(self._model.device) for name, value in inputs.items()})
            return read_scores(output, len(batch))

    def _score_in_its_own_way(self, texts: list[str]) -> list[float]:
        conversations = [[{"role": "user", "content": text}] for text in texts]
        if len(texts) == 1:
            return read_scores(self._model.get_score(self._scoring_tokenizer, conversations[0]), 1)
        return read_scores(self._model.get_scores(self._scoring_tokenizer, conversations), len(texts))

    @staticmethod
    def _padded(row: list[int], width: int, filler: int, padding: str | None) -> list[int]:
        rest = [filler] * (width - len(row))
        return [*rest, *row] if padding == "left" else [*row, *rest]

    @contextlib.contextmanager
    def _pad_token(self, batch: Sequence[Sequence[int]]) -> Iterator[int]:
        """The model's pad token; where it has none, one that no sample has, so that none ends too soon."""
        config = self._model.config.get_text_config()
        if config.pad_token_id is not None:
            yield config.pad_token_id
        elif len(batch) == 1:
            yield 0  # pads nothing
        else:
            used = {token for ids in batch for token in ids}
            config.pad_token_id = next(token for token in range(self.vocabulary) if token not in used)
            try:
                yield config.pad_token_id
            finally:
                config.pad_token_id = None

    def _tokens(self, text: str) -> list[int]:
        try:
            # A conversation that is a text already has the tokens of its template.
            ids = self._tokenizer(text, add_special_tokens=not self._has_own_way, truncation=False)["input_ids"]
        except (TypeError, UnicodeError) as error:
            raise UnusableSampleError(f"the tokenizer does not take the text: {error}") from None
        return [int(token) for token in ids]

    def _text(self, ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text)


class _Rendered:
    """A tokenizer for a model's own `get_score`: what the trainer sends is in the chat template already.

    A conversation is one message whose content is the whole text; everything else is the tokenizer's.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def apply_chat_template(self, conversation: Any, *, tokenize: bool = True, **options: Any) -> Any:
        text = conversation[0]["content"]
        if not tokenize:
            return text
        chosen = {name: options[name] for name in ("return_tensors", "return_dict") if name in options}
        if chosen.pop("return_dict", False):
            return self._tokenizer(text, add_special_tokens=False, **chosen)
        return self._tokenizer.encode(text, add_special_tokens=False, **chosen)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._tokenizer(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def _are_same(alone: Sequence[float], together: Sequence[float], most: float) -> bool:
    return all(abs(a - b) <= most * max(1.0, abs(a)) for a, b in zip(alone, together, strict=True))


def load(
    path: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    trust_remote_code: bool = False,
    max_model_len: int | None = None,
    device: str | None = None,
) -> RewardModel:
    """Load a checkpoint.

    Args:
        path: a folder, or a repository of the hub.
        dtype: auto (the checkpoint's), bfloat16, float16 or float32.
        trust_remote_code: whether the checkpoint's own code may be run.
        max_model_len: longest sample in tokens; None for what the model was trained for.
        device: None for a GPU where there is one.

    Raises:
        ModelRefusedError: it cannot be served as it is.
        OSError: there is no such checkpoint.
    """
    import torch
    import transformers

    where: dict[str, Any] = {"revision": revision} if revision else {}
    config, _ = transformers.PretrainedConfig.get_config_dict(path, **where)

    def is_known(name: str) -> bool:
        return bool(name) and getattr(transformers, name, None) is not None

    auto = loader(config, is_known=is_known)
    own = own_code(config, is_known=is_known)
    if own is not None and not trust_remote_code:
        raise ModelRefusedError(
            f"{path} needs the code that comes with it ({own}), which is not run unless spec.model.trustRemoteCode is"
            " true: read it first, and pin spec.model.revision"
        )
    _refuse_foreign_tokenizer(path, where, is_known, trust_remote_code=trust_remote_code)
    tokenizers = [
        transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code, **where) for _ in range(2)
    ]
    # Code that is there and not needed, as for another head, is left alone.
    model, loaded = getattr(transformers, auto).from_pretrained(
        path, dtype=dtype, trust_remote_code=own is not None, output_loading_info=True, **where
    )
    if lacking := sorted(loaded["missing_keys"]):
        raise ModelRefusedError(f"{path} lacks {_some(lacking)}: its scores would come from random numbers")
    if own is None:
        # A classifier needs no language-model head; what code of its own leaves out is its own affair.
        if beyond := sorted(name for name in loaded["unexpected_keys"] if not name.startswith("lm_head.")):
            raise ModelRefusedError(
                f"{path} has {_some(beyond)}, for which {type(model).__name__} has no place: it would score without"
                " them. Serve a checkpoint whose auto_map names its own code"
            )
        _score_in_float32(model)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).eval()
    if broken := [name for name, values in model.named_parameters() if _has_nan(values)]:
        raise ModelRefusedError(f"{path} has NaN in {_some(broken)}: no sample has a score")
    limit = _limit(model.config.get_text_config(), tokenizers[0], max_model_len)
    log.info("%s is a %s in %s on %s", path, type(model).__name__, str(model.dtype).removeprefix("torch."), device)
    return RewardModel(model, tokenizers[0], scoring_tokenizer=tokenizers[1], max_model_len=limit)


def _has_nan(values: Any) -> bool:
    import torch

    # Quantised weights are of kinds that have no NaN, or that torch does not look into.
    return values.dtype in (torch.float32, torch.bfloat16, torch.float16) and bool(values.isnan().any())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _refuse_foreign_tokenizer(
    path: str, where: Mapping[str, Any], is_known: Callable[[str], bool], *, trust_remote_code: bool
) -> None:
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    config = get_tokenizer_config(path, **where)
    name = str(config.get("tokenizer_class") or "")
    if "auto_map" in config and not is_known(name) and not trust_remote_code:
        raise ModelRefusedError(
            f"{path} needs the tokenizer that comes with it ({name or 'auto_map'}), whose code is not run unless"
            " spec.model.trustRemoteCode is true: read it first, and pin spec.model.revision"
        )


def _score_in_float32(model: Any) -> None:
    """Compute a head of transformers' own classes in float32: in bfloat16 scores of 8 to 16 are 0.0625 apart."""
    import torch

    for name in ("score", "classifier"):
        head = getattr(model, name, None)
        if isinstance(head, torch.nn.Linear):
            head.float().register_forward_pre_hook(lambda _, inputs: tuple(each.float() for each in inputs))


def _limit(config: Any, tokenizer: Any, requested: int | None) -> int:
    positions = next((getattr(config, name, None) for name in ("max_position_embeddings", "n_positions")), None)
    if requested is not None:
        if positions is not None and requested > positions:
            raise ModelRefusedError(f"spec.engine.maxModelLen is {requested}, and the model has {positions} positions")
        return requested
    # A tokenizer whose config sets none says 10^30.
    known = [int(limit) for limit in (positions, tokenizer.model_max_length) if limit is not None and limit < 10**9]
    if not known:
        raise ModelRefusedError("the model does not say how long a sample may be: set spec.engine.maxModelLen")
    return min(known)

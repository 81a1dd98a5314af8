"""What turns a stock model server into a RewardPool worker: a key, one scoring route, and an honest readiness.

This one file needs nothing but the standard library. It is mounted into stock images, never baked into them: vLLM finds
it by `--middleware score_middleware.ScoreMiddleware` with its folder on PYTHONPATH, SGLang gets it from
`sglang_launcher.py`. It is plain ASGI, wraps the engine's whole application, and does seven things:

- **A key.** Every path but the open ones needs `Authorization: Bearer KEY`. The key comes from a file, never from argv.
- **A list of paths.** Engines have routes that change weights, stop the engine, or score by another rule. What
  RewardPool itself does not need is closed, to holders of the key too.
- **Scores.** `POST /v1/embeddings` becomes vLLM's `/classify` without its activation function, and the raw logit comes
  back as `embedding`. It is the only scoring route sglang-router forwards for every engine; SGLang speaks it by itself.
  A score is one number a sample. What has more has no score until somebody declares how they make one. A Teacher has
  log-probabilities instead, by `POST /generate`: `teacher_engines.py` and `teacher_wire.py` are beside this file.
- **Faults told apart.** What the caller did wrong (a sample that is too long) is a 200 with an `error` object, because
  the router opens its circuit breaker on any other status; what the engine did wrong stays an error status, and a
  score that is not a finite number is such a fault, never a number.
- **Whose answer it is.** Each answer repeats the request's `x-correlation-id` as `request_id`, and names the worker's
  `revision`, so that a trainer notices an answer to another request and knows which model scored.
- **Readiness.** `GET /rewardpool/ready` is 200 only when a real score came back.
- **Load.** `GET /rewardpool/load` tells how many requests are in flight here, so that a worker that leaves is stopped
  when it is empty: a router forgets what it sent to a worker the moment it takes the worker off its list.

Settings come from the environment: see `Settings`.
"""

import asyncio
import copy
import functools
import hashlib
import hmac
import json
import logging
import math
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Probe = Callable[[], Awaitable[dict[str, Any]]]
"""Makes one real score and returns what to say about the model; raises whatever went wrong."""
Sample = str | list[int]
"""One sample: its text, or its token ids."""
Countable = int | dict[str, Any]
"""A sample's length in tokens, or the request to vLLM's /tokenize that finds it out."""

log = logging.getLogger("rewardpool.worker")

SCORE_PATH = "/v1/embeddings"
CHAT_PATH = "/v1/chat/completions"
LOGPROBS_PATH = "/generate"
ANSWERED_PATH = {"Discriminative": SCORE_PATH, "Generative": CHAT_PATH, "Teacher": LOGPROBS_PATH}
"""By type of the model."""
READY_PATH = "/rewardpool/ready"
LOAD_PATH = "/rewardpool/load"
SLEEP_PATH = "/rewardpool/sleep"
WAKE_PATH = "/rewardpool/wake"
"""Both answered by the sleep middleware, where there is one."""
OPEN_PATHS = frozenset({"/health", "/health_generate", READY_PATH, "/metrics"})
"""Answered without a key: kubelets, routers and Prometheus ask them, and they tell nothing about any sample."""
ENGINE_PATHS = OPEN_PATHS | {"/v1/models", "/freeze_gc", SLEEP_PATH, WAKE_PATH}
"""What is handed on as it is, beside what is scored: the operator asks for models, SGLang's launcher once for a frozen
garbage collector."""
ROUTED_PATHS = frozenset(
    {
        SCORE_PATH,
        CHAT_PATH,
        LOGPROBS_PATH,
        "/v1/responses",
        "/v1/completions",
        "/v1/classify",
        "/rerank",
        "/v1/rerank",
    }
)
"""What the routers hand on, for each of which they would take another status than 200 for a worker that fails."""

PROBE_TEXT = "ok"
"""Short, so that it fits every model."""
PROBE_IDS = (0, 1, 2, 1, 0)
"""That of a Teacher: every vocabulary has these."""

FRESH_SECONDS = 5.0
"""A score that came back this recently, a trainer's or a probe's, proves readiness. A flooded engine is ready: its
probe would wait behind the flood, fail its deadline, and take the busiest worker out of service."""
FAILED_SECONDS = 1.0
"""How long a failed probe is answered from memory, so that many probers do not add to the trouble."""


@dataclass(frozen=True)
class Settings:
    """How the worker was started; every value from one environment variable."""

    key_file: Path | None = None
    """REWARDPOOL_KEY_FILE. None: anybody who reaches the port may score."""
    model_type: str = "Discriminative"
    """REWARDPOOL_MODEL_TYPE: Discriminative, Generative or Teacher."""
    top_k: int = 64
    """REWARDPOOL_TOP_K: most likely tokens that a Teacher gives for a position, at most."""
    served_name: str = ""
    """REWARDPOOL_SERVED_NAME: the `model` of the probe. Empty: what the engine lists first."""
    engine: str = "vllm"
    """REWARDPOOL_ENGINE: vllm (scores by /classify), sglang or transformers (which speak the contract)."""
    model_path: str = ""
    """REWARDPOOL_MODEL_PATH: folder of the checkpoint, or its repository on a hub."""
    revision: str = ""
    """REWARDPOOL_REVISION: the pool's revision that this worker is of. Empty: answers name none."""
    adapters: tuple[str, ...] = ()
    """REWARDPOOL_ADAPTERS, of which the names: LoRA adapters that score beside the model itself."""
    head: "Head" = field(default_factory=lambda: Head())
    """REWARDPOOL_HEAD: `spec.model.head` as JSON. Absent: the model has one label."""
    max_body_bytes: int = 16 * 1024 * 1024
    """REWARDPOOL_MAX_BODY_BYTES: longest request body that is kept in memory."""
    probe_seconds: float = 30.0
    """REWARDPOOL_PROBE_SECONDS: deadline of one readiness probe."""

    def __post_init__(self) -> None:
        """Refuse settings that no worker can run with."""
        if self.model_type not in ANSWERED_PATH:
            raise ValueError(
                f"REWARDPOOL_MODEL_TYPE must be Discriminative, Generative or Teacher, not {self.model_type!r}"
            )
        if self.engine not in ("vllm", "sglang", "transformers"):
            raise ValueError(f"REWARDPOOL_ENGINE must be vllm, sglang or transformers, not {self.engine!r}")
        if self.max_body_bytes <= 0 or self.probe_seconds <= 0 or self.top_k <= 0:
            raise ValueError(
                "REWARDPOOL_MAX_BODY_BYTES, REWARDPOOL_PROBE_SECONDS and REWARDPOOL_TOP_K must be greater than 0"
            )

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] | None = None) -> "Settings":
        """Read the settings.

        Raises:
            ValueError: a value is not what its variable takes; the text names the variable.
        """
        environ = os.environ if environ is None else environ
        key_file = environ.get("REWARDPOOL_KEY_FILE")
        return cls(
            key_file=Path(key_file) if key_file else None,
            model_type=environ.get("REWARDPOOL_MODEL_TYPE", cls.model_type),
            top_k=_number(environ, "REWARDPOOL_TOP_K", int, cls.top_k),
            served_name=environ.get("REWARDPOOL_SERVED_NAME", cls.served_name),
            engine=environ.get("REWARDPOOL_ENGINE", cls.engine),
            model_path=environ.get("REWARDPOOL_MODEL_PATH", cls.model_path),
            revision=environ.get("REWARDPOOL_REVISION", cls.revision),
            adapters=tuple(one["name"] for one in json.loads(environ.get("REWARDPOOL_ADAPTERS", "[]"))),
            head=Head.from_json(environ.get("REWARDPOOL_HEAD")),
            max_body_bytes=_number(environ, "REWARDPOOL_MAX_BODY_BYTES", int, cls.max_body_bytes),
            probe_seconds=_number(environ, "REWARDPOOL_PROBE_SECONDS", float, cls.probe_seconds),
        )


def _number(environ: MutableMapping[str, str], name: str, kind: Callable[[str], Any], default: Any) -> Any:
    try:
        return kind(environ[name]) if name in environ else default
    except ValueError:
        raise ValueError(f"{name} must be a number, not {environ[name]!r}") from None


KEY_NAMES = ("key", "next-key", "previous-key")
"""Files of a key folder, as in `rewardpool_api.names.KEY_NAMES`: the key, and others valid while it is rotated."""
Stamp = tuple[int, int, int]


class KeyFile:
    """The valid keys: that of a file, and those in files beside it named as in KEY_NAMES. Read again upon any change.

    Kubernetes replaces a mounted Secret's files by switching a link, so the file behind the path is looked at, not the
    path. A file that becomes unreadable keeps the last keys in force and says so once: a failed rotation closes nothing
    and opens nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._paths: tuple[Path, ...] = ()
        self._stamps: list[Stamp | None] = []
        self._keys: list[bytes] = []
        self._unreadable = False
        if path is None:
            log.warning("no REWARDPOOL_KEY_FILE: this worker scores for anybody who reaches its port")
            return
        self._paths = (path, *(path.with_name(name) for name in KEY_NAMES if name != path.name))
        try:
            self._read()
        except OSError as error:
            raise ValueError(f"REWARDPOOL_KEY_FILE cannot be read: {error}") from None

    def admits(self, authorization: bytes | None) -> bool:
        """Whether a request with this `Authorization` header may pass. Takes the same time for every wrong key."""
        if not self._paths:
            return True
        self._refresh()
        scheme, _, given = (authorization or b"").partition(b" ")
        # A list, so that all of them are compared whichever fits.
        fits = [hmac.compare_digest(given.strip(), key) for key in self._keys]
        return any(fits) and scheme.lower() == b"bearer"

    def _refresh(self) -> None:
        try:
            if [_stamp(path) for path in self._paths] != self._stamps:
                self._read()
            self._unreadable = False
        except (OSError, ValueError) as error:
            if not self._unreadable:
                log.warning("the key file cannot be read again, the last key stays valid: %s", error)
            self._unreadable = True

    def _read(self) -> None:
        stamps = [_stamp(path) for path in self._paths]
        first, *others = (
            path.read_bytes().strip() if stamp or not index else b""
            for index, (path, stamp) in enumerate(zip(self._paths, stamps, strict=True))
        )
        if not first:
            raise ValueError(f"REWARDPOOL_KEY_FILE {self._paths[0]} is empty")
        self._keys, self._stamps = [first, *filter(None, others)], stamps


def _stamp(path: Path) -> Stamp | None:
    """Changes with the file behind the path; None where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class InvalidSampleError(ValueError):
    """A request that says something else than the contract; the text says what."""


class WrongModelError(ValueError):
    """A request for another model than this worker's; `served` is the worker's."""

    def __init__(self, model: str, served: str, adapters: Sequence[str] = ()) -> None:
        beside = f", with the adapters {', '.join(adapters)}" if adapters else ""
        adapter = model.removeprefix(ADAPTER_USER)
        missing = f"model {model!r}" if adapter == model else f"adapter {adapter!r}"
        super().__init__(f"there is no {missing} here: this worker serves {served!r}{beside}")
        self.served = served

    def to_wire(self) -> dict[str, Any]:
        """The contract's answer."""
        return error_answer("wrong_model", str(self), served=self.served)


class EngineFaultError(RuntimeError):
    """The engine answered what cannot be passed on as a score; the text says what."""


class NoAnswerError(EngineFaultError):
    """The engine ended a request without an answer, as it does when the caller hung up."""


@dataclass(frozen=True)
class Answer:
    """A whole answer: HTTP status and body."""

    status: int
    body: bytes


ANY_MODEL = "unknown"
"""The `model` of a request for the model that is there, as in `rewardpool_api.contract`."""
ADAPTER_USER = "adapter:"
"""In front of an adapter's name in a request's `user`, which both routers forward as it is. `model` chooses one as
well, where the caller reaches the worker with it: smg refuses every name but the pool's, and turns an alias into that.
"""


def chosen_model(said: str, *, served: str, adapters: Sequence[str]) -> str:
    """The model that is to score, as the engine calls it; pure.

    Args:
        said: what `parse_request` returns.
        served: the served name.
        adapters: names of the LoRA adapters.

    Raises:
        WrongModelError: the worker has neither a model nor an adapter of that name.
    """
    name = said.removeprefix(ADAPTER_USER)
    if name in adapters or said == served:
        return name
    if said == ANY_MODEL:
        return served
    raise WrongModelError(said, served, adapters)


def parse_request(body: bytes) -> tuple[str, list[Sample]]:
    """Read a scoring request.

    Returns:
        The model's name, or `adapter:` and the name of the adapter that `user` chooses; and the samples: all texts, or
        all token ids.

    Raises:
        InvalidSampleError: not the contract's request.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidSampleError(f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise InvalidSampleError("the request is not a JSON object")
    model, given = request.get("model"), request.get("input")
    if not isinstance(model, str):
        raise InvalidSampleError("`model` must be a text")
    user = request.get("user")
    return user if isinstance(user, str) and user.startswith(ADAPTER_USER) else model, parse_samples(given)


def parse_samples(given: object) -> list[Sample]:
    """The samples of a request's `input`; raises what `parse_request` does."""
    if isinstance(given, str):
        return _whole_texts([given])
    if _is_token_ids(given):
        return [given]
    if isinstance(given, list) and given and _all_texts(given):
        return _whole_texts(given)
    if isinstance(given, list) and given and all(_is_token_ids(item) for item in given):
        return given
    raise InvalidSampleError("`input` must be a text, a list of texts, a list of token ids, or a list of such lists")


def _whole_texts(texts: list[str]) -> list[Sample]:
    """The texts, none of which has half of a character in it: JSON can write one, and no tokenizer can read it."""
    for index, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidSampleError(
                f"input {index} has half of a surrogate pair at character {error.start}, which is no text"
            ) from None
    return [*texts]


def vocabulary_size(scope: Scope) -> int | None:
    """How many tokens the engine's model has, from the state of its application; None where it is not there.

    vLLM keeps its whole configuration there, and our launcher of SGLang the number alone.
    """
    state = getattr(scope.get("app"), "state", None)
    vllm = getattr(state, "vllm_config", None)
    size = vllm.model_config.get_vocab_size() if vllm is not None else getattr(state, "vocabulary_size", None)
    return size or None


class WiderTokenizer:
    """vLLM's tokenizer, where it has token ids that the model lacks.

    Authors add a token, such as [PAD], and do not always resize the model. vLLM bounds token ids by the larger of both:
    such a token gets one of the rows that pad its weights, and the text a score that no model gave, or the engine ends.
    """

    def __init__(self, tokenizer: Any) -> None:
        # The engine uses its own in a thread of its own, and a tokenizer is not for two at a time.
        self._tokenizer = copy.deepcopy(tokenizer)
        self._turn = asyncio.Lock()

    @classmethod
    def find(cls, scope: Scope, size: int) -> "WiderTokenizer | None":
        """That of the engine of an application; None where the model has `size` tokens and the tokenizer no other."""
        client = getattr(getattr(scope.get("app"), "state", None), "engine_client", None)
        tokenizer = getattr(getattr(client, "renderer", None), "tokenizer", None)
        return cls(tokenizer) if getattr(tokenizer, "max_token_id", -1) >= size else None

    async def tokens(self, samples: Sequence[Sample]) -> list[list[int]]:
        """The token ids of each sample; those of a text that it cannot read are [], for the engine to refuse."""
        async with self._turn:
            return await asyncio.to_thread(lambda: [self._of(sample) for sample in samples])

    def _of(self, sample: Sample) -> list[int]:
        if isinstance(sample, list):
            return sample
        try:
            return list(self._tokenizer.encode(sample))
        except (TypeError, ValueError):
            return []


def refuse_beyond_vocabulary(samples: Sequence[Sample], size: int) -> None:
    """Keep token ids that the model lacks from the engine: SGLang's process dies of one.

    Raises:
        InvalidSampleError: the text names the token id and its sample.
    """
    for index, sample in enumerate(samples):
        if isinstance(sample, list) and (largest := max(sample, default=0)) >= size:
            raise InvalidSampleError(f"input {index} has the token id {largest}, the model has 0 to {size - 1}")


def _all_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_token_ids(value: Any) -> TypeGuard[list[int]]:
    # bool is an int in Python.
    return isinstance(value, list) and bool(value) and all(type(item) is int and item >= 0 for item in value)


@dataclass(frozen=True)
class Head:
    """How the numbers that an engine gives a sample become its score: `spec.model.head`, or one label without it.

    | head | numbers of the engine | score |
    |---|---|---|
    | none | one raw logit | that logit |
    | Classifier | a raw logit per label | sum of weight times logit |
    | LMHead | the raw logit of a token, or those of yes and of no | that logit, or yes less no |
    | TokenLevel | per step a raw logit, or two | last, min, mean or product of the steps' values |

    The value of a step is its one raw logit, or the probability of the second of two labels: softmax, as the authors
    of process reward models compute it. A language model's no and yes are two such labels.
    """

    type: str = "OneLabel"
    weights: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    aggregate: str = ""
    step_token: str | None = None
    step_token_id: int | None = None
    """Known once the engine's launcher has looked it up."""
    softcap: float | None = None
    """Where the model bounds its logits, after what the engine computes: softcap · tanh(logit / softcap)."""

    @classmethod
    def from_json(cls, text: str | None) -> "Head":
        """Read REWARDPOOL_HEAD; None is a model with one label."""
        if text is None:
            return cls()
        said = json.loads(text)
        return cls(
            type=said["type"],
            weights=tuple(said.get("weights", (1.0, -1.0) if said["type"] == "LMHead" and "yesToken" in said else ())),
            labels=tuple(said.get("labels", ())),
            aggregate=said.get("aggregate", ""),
            step_token=said.get("stepToken"),
            step_token_id=said.get("stepTokenId"),
            softcap=said.get("softcap"),
        )

    @property
    def probe(self) -> Sample:
        """A sample that every model with this head has a score for."""
        return PROBE_TEXT if self.step_token_id is None else [self.step_token_id]

    def read(self, raw: Any, index: int) -> dict[str, Any]:
        """The score of one sample as the contract's `embedding`, with the values of its steps where it has any.

        Raises:
            EngineFaultError: what is there are not finite numbers.
            NotOneNumberError: there are more, or fewer, than the head has.
            InvalidSampleError: the sample has no step.
        """
        if not isinstance(raw, list):
            raise EngineFaultError(f"the engine scored {raw!r:.100}, which is not a list of numbers")
        if self.type != "TokenLevel":
            return {"embedding": [self._of_sample(raw)]}
        if not raw:
            raise InvalidSampleError(f"input {index} has no step: none of its tokens is {self.step_token!r}")
        counted = raw if self.step_token is not None else raw[-1:]
        steps = [self._of_step(numbers) for numbers in counted]
        return {"embedding": [_finite(_AGGREGATES[self.aggregate](steps))], "steps": steps}

    def _of_sample(self, raw: list[Any]) -> float:
        weights = self.weights or (1.0,)
        if len(raw) != len(weights):
            raise NotOneNumberError(len(raw), len(weights))
        return _finite(sum(weight * self._bounded(logit) for weight, logit in zip(weights, raw, strict=True)))

    def _bounded(self, logit: Any) -> float:
        found = _finite(logit)
        return found if self.softcap is None else self.softcap * math.tanh(found / self.softcap)

    def _of_step(self, raw: Any) -> float:
        logits = [self._bounded(logit) for logit in (raw if isinstance(raw, list) else [raw])]
        if len(logits) == 2:
            # softmax(logits)[1], in the form that neither overflows nor rounds a small probability to 0.
            largest = max(logits)
            no, yes = (math.exp(logit - largest) for logit in logits)
            return yes / (no + yes)
        if len(logits) != 1:
            raise NotOneNumberError(len(logits), 2)
        if self.aggregate == "product":
            raise EngineFaultError(
                "spec.model.head.aggregate product takes probabilities, and a step of this model is one raw logit: use "
                "last, min or mean"
            )
        return logits[0]


_AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "last": lambda steps: steps[-1],
    "min": min,
    "mean": lambda steps: math.fsum(steps) / len(steps),
    "product": math.prod,
}


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint's config.json says of its head; the defaults stand for one that cannot be read."""

    architecture: str = "the model"
    labels: tuple[str, ...] = ()
    hidden_size: int | None = None

    @classmethod
    def at(cls, path: str) -> "Checkpoint":
        """Read it in a folder, or in the hub's cache where the engine has put it."""
        try:
            config = json.loads(_config_file(path).read_bytes())
            labels = config.get("id2label") or {}
            return cls(
                architecture=str((config.get("architectures") or [cls.architecture])[0]),
                labels=tuple(str(labels[index]) for index in sorted(labels, key=int)),
                hidden_size=config.get("hidden_size"),
            )
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("the checkpoint's config.json cannot be read: %s: %s", type(error).__name__, error)
            return cls()


def _config_file(path: str) -> Path:
    if (folder := Path(path)).is_dir():
        return folder / "config.json"
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(path, "config.json")
    if not isinstance(found, str):
        raise FileNotFoundError(f"{path} is neither a folder nor in the hub's cache")
    return Path(found)


class NotOneNumberError(EngineFaultError):
    """The engine gives each sample another count of numbers than one, or than the declared head has."""

    def __init__(self, numbers: int, declared: int) -> None:
        needs = "a score is exactly one" if declared == 1 else f"spec.model.head is for {declared}"
        super().__init__(f"the engine gives a sample {numbers} numbers, and {needs}")
        self.numbers = numbers

    def explain(self, checkpoint: Checkpoint) -> str:
        """What it is that has so many numbers, and what to declare."""
        architecture, labels = checkpoint.architecture, checkpoint.labels
        if self.numbers == len(labels):
            names = ", ".join(labels[:8]) + ("…" if len(labels) > 8 else "")
            return (
                f"{self}: {architecture} has the labels {names}. Declare how they make one score: "
                f"spec.model.head {{type: Classifier, weights: [{self.numbers} numbers]}}"
            )
        if self.numbers == checkpoint.hidden_size:
            return (
                f"{self}: as many as {architecture} has hidden units, so they are no labels. This engine serves it "
                "without a reward head; serve it on another engine, or declare in spec.model.head where its score is"
            )
        return f"{self}: declare in spec.model.head how those of {architecture} make one score"


def to_embeddings(answer: Answer, *, field: str, head: Head, model: str, count: int) -> dict[str, Any]:
    """Turn an engine's 200 into the contract's answer.

    Args:
        answer: the engine's.
        field: where it keeps a sample's raw logits: `probs` in vLLM's /classify, `data` in its /pooling, `embedding` in
            SGLang's answer.
        head: how those become a score.
        model: the name to answer with.
        count: how many samples were sent.

    Raises:
        EngineFaultError: not JSON, an error, another number of items, or a logit that is not a finite number.
        NotOneNumberError: an item with more numbers than the head has, or with fewer.
        InvalidSampleError: a sample without a step, where steps are scored.
    """
    try:
        scored = json.loads(answer.body)
        if scored.get("error") is not None:
            raise EngineFaultError(f"the engine answered 200 with an error: {scored['error']!r:.500}")
        data, usage = scored["data"], scored.get("usage", {})
        # An engine that speaks the contract has the values of a text's last token, vLLM those of each token.
        of_last = head.type == "TokenLevel" and field == "embedding"
        items = {item["index"]: [item[field]] if of_last else item[field] for item in data}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineFaultError(f"the engine's answer holds no scores: {type(error).__name__}: {error}") from None
    if len(data) != count or any(type(index) is not int for index in items) or items.keys() != set(range(count)):
        raise EngineFaultError(f"the engine answered the samples {[*items]}, {count} were sent")
    embeddings = [{"object": "embedding", "index": i, **head.read(items[i], i)} for i in range(count)]
    return {"object": "list", "model": model, "data": embeddings, "usage": usage}


def _finite(value: Any) -> float:
    try:
        found = math.nan if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
    except OverflowError:  # an int may be too large for a float
        found = math.inf
    if not math.isfinite(found):
        raise EngineFaultError(f"the engine scored {value!r:.60}, which is not a finite number")
    return found


COMPLAINTS = frozenset({400, 404, 413, 422})
"""Statuses an engine gives to a request that is at fault."""

_NOT_FINITE = "Out of range float values are not JSON compliant"
"""Python's words for a NaN that a strict JSON encoder met. vLLM takes every ValueError for the caller's fault, so a
model that computes NaN answers with status 400 and this text."""

_TOO_LONG = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        # vLLM, after tokenising; "at least" when its tokenizer stopped early.
        r"maximum context length is (?P<limit>\d+) tokens.*contains (?P<bound>at least )?(?P<length>\d+) input tokens",
        # vLLM, before tokenising, where there are more characters than the limit's tokens could hold.
        r"maximum context length is (?P<limit>\d+) tokens.*contains (?P<characters>\d+) characters",
        # SGLang, and the server of the engine transformers.
        r"input \((?P<length>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+) tokens\)",
    )
)


@dataclass(frozen=True)
class TooLong:
    """What an engine says about a sample that does not fit."""

    limit_tokens: int
    length_tokens: int | None
    """None where the engine did not say, or counted only as far as the limit."""


def parse_too_long(message: str) -> TooLong | None:
    """Read limit and length, in tokens, out of vLLM's or SGLang's complaint; None when it is about something else."""
    for pattern in _TOO_LONG:
        if found := pattern.search(message):
            parts = found.groupdict()
            exact = parts.get("length") and not parts.get("bound")
            return TooLong(int(parts["limit"]), int(parts["length"]) if exact else None)
    return None


def caller_complaint(answer: Answer) -> str | None:
    """The engine's message when it says that the request is at fault; None when the answer is anything else.

    vLLM and SGLang answer 400, 404 (a wrong `model`) and 422 with a message. A 404 without one is a route that the
    engine does not have: the pool is set up wrongly, and no sample is to blame. A NaN is the engine's fault, whatever
    its answer says.
    """
    if answer.status not in COMPLAINTS:
        return None
    try:
        said = json.loads(answer.body)
        said = said["error"] if isinstance(said.get("error"), dict) else said
        message = said.get("message")
    except (ValueError, AttributeError):
        return None
    return message if isinstance(message, str) and _NOT_FINITE not in message else None


def _countables(model: str, samples: list[Sample]) -> list[Countable]:
    return [len(sample) if isinstance(sample, list) else {"model": model, "prompt": sample} for sample in samples]


def _countable_chat(request: dict[str, Any]) -> list[Countable]:
    return [{"model": request["model"], "messages": request["messages"]}] if {"model", "messages"} <= {*request} else []


MAX_DEPTH = 64
"""Of a judge's request, arrays and objects in each other: engines fail at a depth of theirs, each at another."""


def parse_chat(body: bytes) -> dict[str, Any]:
    """Read a chat completion request as far as an engine could fail at it rather than refuse it.

    Raises:
        InvalidSampleError: it is no JSON object, has numbers or texts that JSON does not have, or is nested too deep.
    """
    try:
        request = json.loads(body)
        json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidSampleError(f"the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise InvalidSampleError("the request is not a JSON object")
    if _is_deeper(request, MAX_DEPTH):
        raise InvalidSampleError(f"the request is nested deeper than {MAX_DEPTH}")
    return request


def _is_deeper(value: Any, depth: int) -> bool:
    level = [each for each in (value,) if isinstance(each, (dict, list))]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    return bool(level)


FETCHED = ("http://", "https://", "data:")
"""How the address of a picture, sound or video begins. Engines would open others as files of their own."""


def refuse_media(scope: Scope, messages: Any) -> None:
    """Keep from an engine the files of its own machine, and what it would leave out and answer as if it had seen it.

    SGLang opens a path. It leaves pictures out where the model, or its chat template, takes text alone; our launcher of
    it notes that. vLLM refuses both.

    Raises:
        InvalidSampleError: the text names the part.
    """
    shown = getattr(getattr(scope.get("app"), "state", None), "shows_media", True)
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for index, part in enumerate(content if isinstance(content, list) else ()):
            kind = part.get("type") if isinstance(part, dict) else None
            where = f"messages[{place}].content[{index}]"
            if not shown and kind not in ("text", "input_text"):
                raise InvalidSampleError(f"{where} is {kind}, and this model takes text alone")
            for name, given in part.items() if isinstance(part, dict) else ():
                address = given.get("url") if isinstance(given, dict) else given
                if name.endswith("url") and isinstance(address, str) and not address.startswith(FETCHED):
                    raise InvalidSampleError(
                        f"{where}.{name} is {address!r:.60}, and a worker takes http(s) and data: addresses alone"
                    )


REQUEST_ID_HEADER = b"x-correlation-id"
MAX_REQUEST_ID = 256
"""Bytes of a request's id that are repeated."""


def other_revision(revision: str) -> dict[str, Any]:
    """Return the answer of a worker of this revision to a request for another one."""
    error = {"code": "other_revision", "message": f"this worker is of revision {revision}", "fault": "infra"}
    return {"object": "list", "data": [], "error": error}


def echo(request_id: bytes | None, *, revision: str, tokenizer: str | None = None) -> dict[str, Any]:
    """Return the fields by which an answer says whose it is."""
    repeated = None if request_id is None else request_id[:MAX_REQUEST_ID].decode("latin-1")
    said = {"request_id": repeated, "revision": revision or None, "tokenizer": tokenizer}
    return {name: value for name, value in said.items() if value is not None}


WANTED_REVISION = b";revision="
"""In that header, between the request's id and the one revision that may answer."""


def is_for_another(request_id: bytes | None, revision: str) -> bool:
    """Return whether a request is for workers of another revision than this one."""
    _, _, wanted = (request_id or b"").partition(WANTED_REVISION)
    return bool(wanted and revision) and wanted != revision.encode()


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json")
"""What makes a fast tokenizer, and its chat template."""
SLOW_TOKENIZER_FILES = ("tokenizer.model", "spiece.model", "vocab.json", "merges.txt", "vocab.txt")
"""What makes one, where there is no tokenizer.json."""


def tokenizer_digest(path: str) -> str | None:
    """Return a digest of a checkpoint's tokenizer and chat template; None where there is none to be read.

    A trainer computes it in the same way (`rewardpool.rewards.tokenizer_digest`), to know whether the token ids that it
    writes are this model's.
    """
    try:
        folder = _config_file(path).parent
        files = TOKENIZER_FILES + (() if (folder / TOKENIZER_FILES[0]).is_file() else SLOW_TOKENIZER_FILES)
        found = {name: (folder / name).read_bytes() for name in files if (folder / name).is_file()}
    except (OSError, ValueError, ImportError) as error:
        log.warning("the tokenizer's files cannot be read, so answers name none: %s", error)
        return None
    if not found:
        return None
    digest = hashlib.sha256()
    for name, content in sorted(found.items()):
        digest.update(b"%b %d\n" % (name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()[:16]


def with_echo(body: bytes, said: dict[str, Any]) -> bytes:
    """Add those fields to an engine's answer; one that is not a JSON object stays as it is."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return body
    return json.dumps({**answer, **said}).encode() if isinstance(answer, dict) else body


FAULT_OF_CODE = {"sample_too_long": "policy", "invalid_sample": "verifier", "wrong_model": "infra"}
"""As in `rewardpool_api.contract`."""


def error_answer(code: str, message: str, **further: int | str | None) -> dict[str, Any]:
    """The contract's answer to a request that the worker refuses; goes out with status 200."""
    known = {name: value for name, value in further.items() if value is not None}
    error = {"code": code, "message": message, "fault": FAULT_OF_CODE[code], **known}
    return {"object": "list", "data": [], "error": error}


class ScoreMiddleware:
    """The ASGI application around the engine's. Starlette makes one per server process."""

    def __init__(
        self, app: App, *, settings: Settings | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._settings = settings or Settings.from_environment()
        self._key = KeyFile(self._settings.key_file)
        self._readiness = Readiness(deadline_seconds=self._settings.probe_seconds, clock=clock)
        self._model: dict[str, Any] | None = None
        self._in_flight = 0
        self._wider: WiderTokenizer | None = None
        self._looked_for_wider = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if path not in OPEN_PATHS and not self._key.admits(_header(scope, b"authorization")):
            await _refuse(scope, send)
        elif path == READY_PATH:
            ready, report = await self._readiness.report(lambda: self._probe(scope))
            await _send_json(send, 200 if ready else 503, report)
        elif path == LOAD_PATH:
            await _send_json(send, 200, {"in_flight": self._in_flight})
        elif scope["type"] == "http" and scope["method"] == "POST" and path == self._scored_path:
            self._in_flight += 1
            try:
                await self._serve(scope, receive, send)
            finally:
                self._in_flight -= 1
        elif scope["type"] == "http" and scope["method"] == "POST" and path in ROUTED_PATHS:
            await _read_body(receive, 0)
            await self._answer(scope, send, error_answer("invalid_sample", f"this worker scores {self._scored_path}"))
        elif scope["type"] != "http" or path not in ENGINE_PATHS:
            await _refuse_route(scope, send)
        else:
            if path == SLEEP_PATH and scope.get("method") == "POST":
                # However recently a score came back, the next prober has to find out anew.
                self._readiness.forget()
            await self._app(scope, receive, send)

    @property
    def _scored_path(self) -> str:
        return ANSWERED_PATH[self._settings.model_type]

    def _echo(self, scope: Scope) -> dict[str, Any]:
        request_id = _header(scope, REQUEST_ID_HEADER)
        return echo(request_id, revision=self._settings.revision, tokenizer=self._tokenizer)

    @functools.cached_property
    def _tokenizer(self) -> str | None:
        """That of the files as they are at the first answer, soon after the engine has read them."""
        settings = self._settings
        if settings.model_type == "Generative" or not settings.model_path:
            return None
        return tokenizer_digest(settings.model_path)

    async def _answer(self, scope: Scope, send: Send, content: dict[str, Any]) -> None:
        """Answer with status 200, saying whose answer it is."""
        await _send_json(send, 200, {**content, **self._echo(scope)})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read_body(receive, self._settings.max_body_bytes)
        if is_for_another(_header(scope, REQUEST_ID_HEADER), self._settings.revision):
            await self._answer(scope, send, other_revision(self._settings.revision))
        elif body is None:
            bound = self._settings.max_body_bytes
            error = error_answer("invalid_sample", f"the request has more than {bound} bytes")
            await self._answer(scope, send, error)
        elif self._settings.model_type == "Discriminative":
            await self._serve_scores(scope, receive, send, body)
        elif self._settings.model_type == "Teacher":
            await self._serve_logprobs(scope, receive, send, body)
        else:
            await self._serve_chat(scope, receive, send, body)

    async def _refuse_beyond_vocabulary(self, scope: Scope, samples: list[Sample]) -> None:
        size = vocabulary_size(scope)
        if size is None:
            return
        if not self._looked_for_wider:
            self._wider, self._looked_for_wider = WiderTokenizer.find(scope, size), True
        refuse_beyond_vocabulary(samples, size)
        if self._wider is not None:
            refuse_beyond_vocabulary(await self._wider.tokens(samples), size)

    async def _serve_scores(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        try:
            said, samples = parse_request(body)
            model = await self._chosen_model(scope, said)
            await self._refuse_beyond_vocabulary(scope, samples)
            answer = await self._ask_for_scores(scope, receive, model, samples)
            complaint = caller_complaint(answer)
            if complaint is not None:
                refusal = await self._refusal(scope, answer, complaint, _countables(model, samples))
                await self._answer(scope, send, refusal)
            elif answer.status != 200:
                await _send(send, _engine_fault(answer))
            else:
                await self._answer(scope, send, self._read_scores(answer, model, len(samples)))
                self._readiness.scored()
        except NoAnswerError:
            # Nobody is there to tell. Were it the engine's fault, the server would notice that nothing was sent.
            log.debug("a caller hung up")
        except InvalidSampleError as error:
            await self._answer(scope, send, error_answer("invalid_sample", str(error)))
        except WrongModelError as error:
            await self._answer(scope, send, error.to_wire())
        except EngineFaultError as error:
            log.error("%s", error)  # noqa: TRY400 - the message says it all; a traceback per sample would not
            await _send(send, _fault(500, str(error)))

    async def _serve_logprobs(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        import teacher_wire

        words = None
        try:
            asked, words = teacher_wire.parse_request(body)
            model = await self._chosen_model(scope, asked.model)
            found = await self._logprobs(scope, receive, asked)
            if isinstance(found, dict):
                await self._answer(scope, send, found)
                return
            echo = self._echo(scope)
            # Beside the loop, which has other callers: of a long answer this takes a second.
            content = await asyncio.to_thread(teacher_wire.answer, found, asked, words, model=model, echo=echo)
            await _send(send, Answer(200, content))
            self._readiness.scored()
        except NoAnswerError:
            log.debug("a caller hung up")
        except teacher_wire.TooLongError as error:
            lengths = {"length_tokens": error.length_tokens, "limit_tokens": error.limit_tokens}
            await self._answer(scope, send, error_answer("sample_too_long", str(error), **lengths))
        except teacher_wire.BadRequestError as error:
            problem = str(error) if words is None else words.reworded(str(error))
            await self._answer(scope, send, error_answer("invalid_sample", problem))
        except WrongModelError as error:
            await self._answer(scope, send, error.to_wire())
        except EngineFaultError as error:
            log.error("%s", error)  # noqa: TRY400 - the message says it all
            await _send(send, _fault(500, str(error)))

    async def _logprobs(self, scope: Scope, receive: Receive, asked: Any) -> Any:
        """Return the `teacher_wire.Values` of a `teacher_wire.Question`, or the answer that SGLang refuses it.

        Raises:
            BadRequestError: it is refused; of `teacher_wire`.
            EngineFaultError: the engine has no log-probabilities, or such as cannot be.
            NoAnswerError: the caller hung up.
        """
        import teacher_engines
        import teacher_wire

        size = vocabulary_size(scope)
        if size is None:
            raise EngineFaultError("the engine does not say how many tokens its model has")
        most = (self._model or await self._describe_model(scope))["max_model_len"]
        teacher_wire.check_question(asked, vocabulary=size, most_tokens=most, most_top_k=self._settings.top_k)
        try:
            if self._settings.engine == "vllm":
                found = await teacher_engines.ask_vllm(scope, receive, asked)
            else:
                answer = await self._ask(scope, LOGPROBS_PATH, teacher_engines.to_sglang(asked), receive)
                if (complaint := caller_complaint(answer)) is not None:
                    return await self._refusal(scope, answer, complaint, [len(asked.token_ids)])
                found = await asyncio.to_thread(teacher_engines.of_sglang, _only_200(answer).body, asked)
            await asyncio.to_thread(teacher_wire.check_values, found, asked, vocabulary=size)
        except teacher_engines.DisconnectedError:
            raise NoAnswerError("the caller hung up") from None
        except teacher_wire.BadAnswerError as error:
            raise EngineFaultError(f"the engine's log-probabilities are wrong: {error}") from None
        return found

    async def _serve_chat(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """Pass a request on as it is, and a streamed answer as it comes.

        A complaint is reworded, and a whole answer says whose it is; a streamed one has no place for that.
        """
        try:
            request = parse_chat(body)
            refuse_media(scope, request.get("messages"))
            if isinstance(said := request.get("model"), str) and said != (
                model := await self._chosen_model(scope, said)
            ):
                body = json.dumps({**request, "model": model}).encode()
        except InvalidSampleError as error:
            await self._answer(scope, send, error_answer("invalid_sample", str(error)))
            return
        except WrongModelError as error:
            await self._answer(scope, send, error.to_wire())
            return
        except EngineFaultError as error:
            await _send(send, _fault(500, str(error)))
            return
        buffered = _BufferedAnswer()
        status, is_buffered = 0, False

        async def forward(message: Message) -> None:
            nonlocal status, is_buffered
            if message["type"] == "http.response.start":
                status = message["status"]
                is_json = (_header(message, b"content-type") or b"").startswith(b"application/json")
                is_buffered = status in COMPLAINTS or (status == 200 and is_json)
            if is_buffered:
                await buffered.send(message)
                return
            await send(message)
            if status == 200 and message["type"] == "http.response.body" and not message.get("more_body"):
                self._readiness.scored()

        await self._app(scope, _replay(body, receive), forward)
        if not is_buffered:
            return
        answer = buffered.answer()
        if status == 200:
            await _send(send, Answer(200, with_echo(answer.body, self._echo(scope))))
            self._readiness.scored()
            return
        complaint = caller_complaint(answer)
        if complaint is None:
            await _send(send, _engine_fault(answer))
        else:
            await self._answer(scope, send, await self._refusal(scope, answer, complaint, _countable_chat(request)))

    async def _ask_for_scores(self, scope: Scope, receive: Receive, model: str, samples: list[Sample]) -> Answer:
        if self._settings.engine != "vllm":
            return await self._ask(scope, SCORE_PATH, {**self._by_name(model), "input": samples}, receive)
        # Without use_activation=false the scores are sigmoids, and good samples all look alike.
        request: dict[str, Any] = {"model": model, "input": samples, "use_activation": False}
        if self._settings.head.type == "TokenLevel":
            return await self._ask(scope, "/pooling", {**request, "task": "token_classify"}, receive)
        return await self._ask(scope, "/classify", request, receive)

    def _by_name(self, model: str) -> dict[str, Any]:
        """How a request names the base or an adapter: SGLang has adapters in a field of their own."""
        if self._settings.engine == "sglang" and model in self._settings.adapters:
            return {"model": self._settings.served_name, "lora_path": model}
        return {"model": model}

    async def _chosen_model(self, scope: Scope, said: str) -> str:
        """Return the model that is to score, as the engine calls it. SGLang would serve any name.

        Raises:
            WrongModelError: the worker has none of that name, and the engine lists none.
        """
        served = self._settings.served_name
        if not served and not said.startswith(ADAPTER_USER):  # only the engine knows it, and refuses others by itself
            return (self._model or await self._describe_model(scope))["model"] if said == ANY_MODEL else said
        try:
            return chosen_model(said, served=served, adapters=self._settings.adapters)
        except WrongModelError:
            if said.startswith(ADAPTER_USER):
                raise
            listed = await self._list_models(scope)
            # An adapter's name may stand behind its base model's.
            if said in listed or (said.startswith(f"{served}:") and said.partition(":")[2] in listed):
                return said
            raise

    def _read_scores(self, answer: Answer, model: str, count: int) -> dict[str, Any]:
        head = self._settings.head
        of_vllm = "data" if head.type == "TokenLevel" else "probs"
        field = of_vllm if self._settings.engine == "vllm" else "embedding"
        return to_embeddings(answer, field=field, head=head, model=model, count=count)

    async def _refusal(self, scope: Scope, answer: Answer, complaint: str, samples: list[Countable]) -> dict[str, Any]:
        """Return the contract's answer for the engine's complaint about a request."""
        if answer.status == 404:  # with a message, it is about the name
            return error_answer("wrong_model", complaint, served=self._settings.served_name or None)
        too_long = parse_too_long(complaint)
        if too_long is None:
            return error_answer("invalid_sample", complaint)
        limit = too_long.limit_tokens
        for index, sample in enumerate(samples):
            length = sample if isinstance(sample, int) else await self._count_tokens(scope, sample)
            if length is not None and length > limit:
                message = f"input {index} has {length} tokens, the model takes at most {limit}"
                return error_answer("sample_too_long", message, length_tokens=length, limit_tokens=limit)
        return error_answer("sample_too_long", complaint, length_tokens=too_long.length_tokens, limit_tokens=limit)

    async def _count_tokens(self, scope: Scope, request: dict[str, Any]) -> int | None:
        answer = await self._ask(scope, "/tokenize", request)
        if answer.status != 200:
            log.warning("/tokenize answered %d, a sample's length stays unknown", answer.status)
            return None
        return int(json.loads(answer.body)["count"])

    async def _ask(
        self, scope: Scope, path: str, request: dict[str, Any] | None = None, receive: Receive | None = None
    ) -> Answer:
        """Call the engine's own application, and keep its whole answer.

        With the caller's `receive`, the engine hears of a caller who hangs up and stops computing.

        Raises:
            NoAnswerError: it ended without one, as it does when the caller hung up.
        """
        body = b"" if request is None else json.dumps(request).encode()
        inner = {
            **scope,
            "method": "GET" if request is None else "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [*_kept_headers(scope), (b"content-length", str(len(body)).encode())],
        }
        buffered = _BufferedAnswer()
        await self._app(inner, _replay(body, receive or _never), buffered.send)
        return buffered.answer()

    async def _probe(self, scope: Scope) -> dict[str, Any]:
        """Make one real score, within the scope of the prober's request: frameworks keep their application in it.

        Returns:
            What the ready report says about the model: its served name, its longest sample in tokens or None, and of
            a discriminative model the score of the probe text, of a teacher the mean log-probability of its tokens.

        Raises:
            EngineFaultError: no finite score came back.
        """
        described = self._model or await self._describe_model(scope)
        name = described["model"]
        if self._settings.model_type == "Discriminative":
            # Each adapter once: vLLM has read its files then. From then on the base stands for all.
            for adapter in self._settings.adapters if self._model is None else ():
                await self._probe_adapter(scope, adapter)
            scored = {"probe_score": await self._probe_score(scope, name)}
        elif self._settings.model_type == "Teacher":
            scored = {"probe_score": await self._probe_logprob(scope)}
        else:
            scored = {}
            messages = [{"role": "user", "content": PROBE_TEXT}]
            request = {"model": name, "messages": messages, "max_tokens": 1}
            _only_200(await self._ask(scope, CHAT_PATH, request))
        self._model = described
        return {**described, **scored}

    async def _probe_adapter(self, scope: Scope, name: str) -> None:
        try:
            await self._probe_score(scope, name)
        except EngineFaultError as error:
            raise EngineFaultError(f"the adapter {name} does not score: {error}") from None

    async def _probe_score(self, scope: Scope, name: str) -> float:
        head = self._settings.head
        if head.labels and (found := Checkpoint.at(self._settings.model_path)).labels != head.labels:
            raise EngineFaultError(
                f"spec.model.head.labels are {', '.join(head.labels)}, and those of {found.architecture} are "
                f"{', '.join(found.labels) or 'not named in its config.json'}"
            )
        answer = await self._ask_for_scores(scope, _never, name, [head.probe])
        if answer.status == 501 or (answer.status == 404 and caller_complaint(answer) is None):
            architecture = Checkpoint.at(self._settings.model_path).architecture
            raise EngineFaultError(
                f"the engine serves {architecture} without a classification head: declare in spec.model.head where its "
                "score is, serve a checkpoint with one label, or set spec.model.type Generative for a judge"
            )
        if _NOT_FINITE in answer.body.decode(errors="replace"):
            raise EngineFaultError("the engine's score is NaN or infinite: look for broken weights in the checkpoint")
        try:
            scores = self._read_scores(_only_200(answer), name, 1)
        except NotOneNumberError as error:
            raise EngineFaultError(error.explain(Checkpoint.at(self._settings.model_path))) from None
        return float(scores["data"][0]["embedding"][0])

    async def _probe_logprob(self, scope: Scope) -> float:
        """The mean of the probe's log-probabilities."""
        import teacher_wire

        asked = teacher_wire.question(PROBE_IDS)
        try:
            found = await self._logprobs(scope, _never, asked)
        except teacher_wire.BadRequestError as error:
            raise EngineFaultError(str(error)) from None
        if isinstance(found, dict):
            raise EngineFaultError(found["error"]["message"])
        return math.fsum(found.logprobs) / len(found.logprobs)

    async def _describe_model(self, scope: Scope) -> dict[str, Any]:
        cards = await self._list_models(scope)
        first = next(iter(cards))
        name = self._settings.served_name or first
        described = {"model": name, "max_model_len": cards.get(name, cards[first]).get("max_model_len")}
        if self._settings.model_type == "Teacher" and isinstance(described["max_model_len"], int):
            from teacher_engines import RESERVED_TOKENS

            described["max_model_len"] -= RESERVED_TOKENS[self._settings.engine]
        described |= {} if self._tokenizer is None else {"tokenizer": self._tokenizer}
        return described | ({"adapters": list(self._settings.adapters)} if self._settings.adapters else {})

    async def _list_models(self, scope: Scope) -> dict[str, dict[str, Any]]:
        """What the engine says about its models, at least one, by their names in its order."""
        answer = _only_200(await self._ask(scope, "/v1/models"))
        try:
            cards = {card["id"]: card for card in json.loads(answer.body)["data"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineFaultError(f"/v1/models is not a list of models: {type(error).__name__}: {error}") from None
        if not cards:
            raise EngineFaultError("/v1/models lists no model")
        return cards


class Readiness:
    """Whether the worker scores, from at most one probe at a time.

    Probers share a running probe, a recent score stands in for one, and a failure is remembered for a moment. So
    neither kubelets, routers and operators together nor a stranger can pile up probes on the engine.
    """

    def __init__(self, *, deadline_seconds: float, clock: Callable[[], float]) -> None:
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._last_score = -math.inf
        self._last_failure = -math.inf
        self._said: dict[str, Any] = {}
        self._reason = ""
        self._running: asyncio.Task[None] | None = None

    def scored(self) -> None:
        """Note that a score just came back to a caller."""
        self._last_score = self._clock()

    def forget(self) -> None:
        """Take no earlier score for a proof."""
        self._last_score = -math.inf

    async def report(self, probe: Probe) -> tuple[bool, dict[str, Any]]:
        """Return whether the worker is ready, and the JSON to say so with; waits for a probe where none is recent."""
        if self._is_due():
            if self._running is None or self._running.done():
                self._running = asyncio.create_task(self._run(probe))
            # One prober that gives up must not cancel the probe that others wait for.
            await asyncio.shield(self._running)
        if self._said and self._last_score > self._last_failure:
            return True, {"ready": True, **self._said}
        return False, {"ready": False, "reason": self._reason}

    def _is_due(self) -> bool:
        now = self._clock()
        # Before the first probe the model's limits are not known, however many scores came back.
        proven = bool(self._said) and now - self._last_score <= FRESH_SECONDS
        return not proven and now - self._last_failure > FAILED_SECONDS

    async def _run(self, probe: Probe) -> None:
        started = self._clock()
        try:
            # Stock images may have Python 3.10, which lacks asyncio.timeout.
            described = await asyncio.wait_for(probe(), self._deadline_seconds)  # noqa: TID251
        except TimeoutError:
            self._fail(f"no score within {self._deadline_seconds:g} seconds")
        except Exception as error:  # whatever the engine raises is the reason it is not ready
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._last_score = self._clock()
            self._said = {**described, "score_seconds": round(self._clock() - started, 4)}

    def _fail(self, reason: str) -> None:
        self._last_failure = self._clock()
        self._reason = reason


class _BufferedAnswer:
    """Collects the messages of one answer instead of sending them."""

    def __init__(self) -> None:
        self._status: int | None = None
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")

    def answer(self) -> Answer:
        if self._status is None:
            raise NoAnswerError("the engine ended the request without an answer")
        return Answer(self._status, bytes(self._body))


def _only_200(answer: Answer) -> Answer:
    if answer.status != 200:
        raise EngineFaultError(f"status {answer.status}: {answer.body[:500].decode(errors='replace')}")
    return answer


def _header(of: MutableMapping[str, Any], name: bytes) -> bytes | None:
    """Return a header of a request's scope or of an answer's first message; None without one."""
    found: Iterable[bytes] = (value for key, value in of.get("headers", ()) if key.lower() == name)
    return next(iter(found), None)


def _kept_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    # The body is ours, so what described the caller's goes; request ids and trace contexts stay.
    replaced = (b"content-length", b"content-type", b"transfer-encoding", b"content-encoding")
    kept = [(name, value) for name, value in scope["headers"] if name not in replaced]
    return [*kept, (b"content-type", b"application/json")]


async def _read_body(receive: Receive, limit_bytes: int) -> bytes | None:
    """The request's body; None when it is longer than the limit.

    A body that is too long is read to its end all the same and thrown away: an answer in the middle of it reads as a
    broken connection to the router, which would try the sample on every other worker.
    """
    body = bytearray()
    too_long = False
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        chunk = message.get("body", b"")
        too_long = too_long or len(body) + len(chunk) > limit_bytes
        if not too_long:
            body += chunk
        if not message.get("more_body"):
            break
    return None if too_long else bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body first and then whatever the connection gives, which is its end."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _never() -> Message:
    """The `receive` of a caller who never hangs up."""
    await asyncio.Event().wait()
    return {"type": "http.disconnect"}


def _fault(status: int, message: str) -> Answer:
    return Answer(status, json.dumps({"error": {"code": "engine_fault", "message": message}}).encode())


def _engine_fault(answer: Answer) -> Answer:
    """What an engine's failure is passed on as: its own words, under a status that nobody takes for the caller's."""
    status = answer.status if answer.status >= 500 or answer.status == 429 else 500
    said = answer.body[:2000].decode(errors="replace")
    if _NOT_FINITE in said:
        said = f"the engine's score is NaN or infinite ({said})"
    return _fault(status, f"the engine answered {answer.status}: {said}")


async def _send_json(send: Send, status: int, content: dict[str, Any]) -> None:
    await _send(send, Answer(status, json.dumps(content, allow_nan=False).encode()))


async def _send(send: Send, answer: Answer, *headers: tuple[bytes, bytes]) -> None:
    described = [(b"content-type", b"application/json"), (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": [*described, *headers]})
    await send({"type": "http.response.body", "body": answer.body})


async def _refuse_route(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "there is no such route"})
        return
    error = {"code": "not_found", "message": "a worker serves what scoring needs, and nothing else"}
    await _send_json(send, 404, {"error": error})


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "a key is needed"})
        return
    message = "this worker needs the pool's key as Authorization: Bearer KEY"
    body = json.dumps({"error": {"code": "unauthorized", "message": message}}).encode()
    await _send(send, Answer(401, body), (b"www-authenticate", b"Bearer"))

"""The engine behind the middleware: what is asked of it, in its own dialect, and what its answers mean.

`POST /v1/embeddings` becomes vLLM's `/classify` without its activation function, and the raw logit comes back as
`embedding`. It is the only scoring route that sglang-router forwards for every engine; SGLang and RewardPool's own
server speak it by themselves.
"""

import asyncio
import functools
import json
import logging
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rewardpool_api import teacher_wire
from rewardpool_api.contract import ADAPTER_USER, ANY_MODEL, CHAT_PATH, SCORE_PATH, CallerError
from rewardpool_api.engines import FOR_MODELS, setting_against
from rewardpool_worker.engine_side.middleware import certificate, teacher_engines
from rewardpool_worker.engine_side.middleware.asgi import (
    Answer,
    App,
    DisconnectedError,
    Receive,
    Scope,
    call,
    never_disconnects,
)
from rewardpool_worker.engine_side.middleware.checkpoint import Checkpoint, tokenizer_digest, vocabulary_digest_at
from rewardpool_worker.engine_side.middleware.complaints import (
    NOT_FINITE,
    caller_complaint,
    only_200,
    parse_too_long,
)
from rewardpool_worker.engine_side.middleware.errors import (
    EngineFaultError,
    InvalidRequestError,
    NoAnswerError,
    OtherModelError,
)
from rewardpool_worker.engine_side.middleware.heads import PROBE_TEXT, NotOneNumberError, to_embeddings
from rewardpool_worker.engine_side.middleware.requests import Sample, chosen_model
from rewardpool_worker.engine_side.middleware.settings import Settings
from rewardpool_worker.engine_side.middleware.vocabulary import (
    WiderTokenizer,
    refuse_beyond_vocabulary,
    vocabulary_size,
)

PROBE_IDS = (0, 1, 2, 1, 0)  # every vocabulary has these
# Long enough that other weights give another score, and in no cache before: behind a cached prefix it may differ.
FINGERPRINT_TEXT = "The quick brown fox jumps over the lazy dog."
Countable = int | dict[str, Any]
"""A sample's length in tokens, or the request to vLLM's /tokenize that finds it out."""

log = logging.getLogger("rewardpool.worker")


class RunningEngine:
    """The engine of this process, called within the scope of a request: frameworks keep their application in it."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._model: dict[str, Any] | None = None
        self._wider: WiderTokenizer | None = None
        self._sought_wider = False

    @functools.cached_property
    def tokenizer(self) -> str | None:
        """Digest of the tokenizer's files as they are at the first answer, soon after the engine has read them."""
        settings = self._settings
        if settings.model_type == "Generative" or not settings.model_path:
            return None
        # A teacher is sent token ids: a student may have another chat template.
        digest = vocabulary_digest_at if settings.model_type == "Teacher" else tokenizer_digest
        return digest(settings.model_path)

    async def scores(self, scope: Scope, receive: Receive, model: str, samples: list[Sample]) -> Answer:
        """Return the engine's answer to samples, whatever it is."""
        if self._settings.engine != "vllm":
            return await call(self._app, scope, SCORE_PATH, {**self._by_name(model), "input": samples}, receive)
        # Without use_activation=false the scores are sigmoids, and good samples all look alike.
        request: dict[str, Any] = {"model": model, "input": samples, "use_activation": False}
        if self._settings.head.type == "TokenLevel":
            return await call(self._app, scope, "/pooling", {**request, "task": "token_classify"}, receive)
        return await call(self._app, scope, "/classify", request, receive)

    def read_scores(self, answer: Answer, model: str, count: int) -> dict[str, Any]:
        """Return the contract's answer for the engine's; raises what `to_embeddings` does."""
        head = self._settings.head
        of_vllm = "data" if head.type == "TokenLevel" else "probs"
        field = of_vllm if self._settings.engine == "vllm" else "embedding"
        return to_embeddings(answer, field=field, head=head, model=model, count=count)

    def _by_name(self, model: str) -> dict[str, Any]:
        if self._settings.engine == "sglang" and model in self._settings.adapters:
            return {"model": self._settings.served_name, "lora_path": model}
        return {"model": model}

    async def logprobs(
        self, scope: Scope, receive: Receive, question: teacher_wire.SequenceQuestion
    ) -> teacher_wire.Values | CallerError:
        """Return the log-probabilities that a teacher's question is for, or the error where SGLang refuses it.

        Raises:
            BadRequestError: the question is refused.
            EngineFaultError: the engine has no log-probabilities, or such as cannot be.
            NoAnswerError: the caller disconnected.
        """
        size = vocabulary_size(scope)
        if size is None:
            raise EngineFaultError("the engine does not say how many tokens its model has")
        most = (self._model or await self._describe_model(scope))["max_model_len"]
        teacher_wire.check_question(question, vocabulary=size, most_tokens=most, most_top_k=self._settings.top_k)
        try:
            if self._settings.engine == "vllm":
                found = await teacher_engines.ask_vllm(scope, receive, question)
            else:
                request = teacher_engines.to_sglang(question)
                answer = await call(self._app, scope, teacher_wire.LOGPROBS_PATH, request, receive)
                if (complaint := caller_complaint(answer)) is not None:
                    return await self.refusal(scope, answer, complaint, [len(question.token_ids)])
                found = await asyncio.to_thread(teacher_engines.of_sglang, only_200(answer).body, question)
            await asyncio.to_thread(teacher_wire.check_values, found, question, vocabulary=size)
        except DisconnectedError:
            raise NoAnswerError("the caller disconnected") from None
        except teacher_wire.BadAnswerError as error:
            raise EngineFaultError(f"the engine's log-probabilities are wrong: {error}") from None
        return found

    async def refuse_beyond_vocabulary(self, scope: Scope, samples: list[Sample]) -> None:
        """Raise InvalidRequestError for a sample with a token that the model lacks, where its size is known."""
        size = vocabulary_size(scope)
        if size is None:
            return
        if not self._sought_wider:
            self._wider, self._sought_wider = WiderTokenizer.find(scope, size), True
        refuse_beyond_vocabulary(samples, size)
        if self._wider is not None:
            refuse_beyond_vocabulary(await self._wider.tokens(samples), size)

    async def choose_model(self, scope: Scope, said: str) -> str:
        """Return the model that is to score, as the engine calls it. SGLang would serve any name.

        Raises:
            OtherModelError: the worker has none of that name, and the engine lists none.
        """
        served = self._settings.served_name
        if not served and not said.startswith(ADAPTER_USER):  # only the engine knows it, and refuses others by itself
            return (self._model or await self._describe_model(scope))["model"] if said == ANY_MODEL else said
        try:
            return chosen_model(said, served=served, adapters=self._settings.adapters)
        except OtherModelError:
            if said.startswith(ADAPTER_USER):
                raise
            listed = await self._list_models(scope)
            # An adapter's name may stand behind its base model's.
            if said in listed or (said.startswith(f"{served}:") and said.partition(":")[2] in listed):
                return said
            raise

    async def refusal(self, scope: Scope, answer: Answer, complaint: str, samples: list[Countable]) -> CallerError:
        """Return the contract's error for the engine's complaint about a request."""
        if answer.status == 404:  # with a message, it is about the name
            return CallerError(code="wrong_model", message=complaint, served=self._settings.served_name or None)
        too_long = parse_too_long(complaint)
        if too_long is None:
            return CallerError(code="invalid_sample", message=complaint)
        limit = too_long.limit_tokens
        for index, sample in enumerate(samples):
            length = sample if isinstance(sample, int) else await self._count_tokens(scope, sample)
            if length is not None and length > limit:
                message = f"input {index} has {length} tokens, the model takes at most {limit}"
                return CallerError(code="sample_too_long", message=message, length_tokens=length, limit_tokens=limit)
        return CallerError(
            code="sample_too_long", message=complaint, length_tokens=too_long.length_tokens, limit_tokens=limit
        )

    async def _count_tokens(self, scope: Scope, request: dict[str, Any]) -> int | None:
        answer = await call(self._app, scope, "/tokenize", request)
        if answer.status != 200:
            log.warning("/tokenize answered %d, a sample's length stays unknown", answer.status)
            return None
        return int(json.loads(answer.body)["count"])

    async def probe(self, scope: Scope) -> dict[str, Any]:
        """Make one real score.

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
            only_200(await call(self._app, scope, CHAT_PATH, request))
        self._model = described
        return {**described, **scored}

    async def certify(self, scope: Scope) -> dict[str, Any]:
        """Compare numbers of the model itself that are asked for in several ways; `probe` succeeded before.

        Returns:
            What the ready report says of it; empty of a judge, who writes words, and where none is wanted.

        Raises:
            NumbersVaryError: they depend on how they are asked for.
            EngineFaultError: a sample has no finite number.
        """
        settings = self._settings
        described, is_teacher = self._model or {}, settings.model_type == "Teacher"
        if settings.model_type == "Generative" or not settings.certificate_seconds:
            return {}

        async def measure(samples: Sequence[list[int]]) -> Sequence[certificate.Numbers]:
            if is_teacher:
                return await asyncio.gather(*(self._logprobs_of(scope, sample) for sample in samples))
            return await self._scores_of(scope, described["model"], samples)

        return await certificate.certify(
            measure,
            certificate.fixed_samples(
                prompt_tokens=certificate.UNCACHED_TOKENS if is_teacher else certificate.PROMPT_TOKENS,
                most_tokens=described["max_model_len"],
                vocabulary=vocabulary_size(scope),
                last=settings.head.step_token_id,
            ),
            dtype=settings.dtype,
            seconds=settings.certificate_seconds,
            scores=not is_teacher,
            remedy=self._remedy,
        )

    async def fingerprint(self, scope: Scope) -> certificate.Numbers:
        """Return numbers that stand for the weights, as callers get them.

        A sample's score and those of its steps, a teacher's log-probabilities, or that of a judge's first token.

        Raises:
            EngineFaultError: there are none, or not finite ones.
        """
        name = (self._model or await self._describe_model(scope))["model"]
        if self._settings.model_type == "Generative":
            return (await self._first_token_logprob(scope, name),)
        try:
            if self._settings.model_type == "Teacher":
                return await self._logprobs_of(scope, [*PROBE_IDS])
            step = self._settings.head.step_token_id
            # Several steps: the value of one is a probability, which other weights may have too.
            steps = [token for one in PROBE_IDS for token in (one, step)] if step is not None else FINGERPRINT_TEXT
            [numbers] = await self._scores_of(scope, name, [steps])
        except certificate.CannotAskError as error:
            raise EngineFaultError(str(error)) from None
        return numbers

    async def _first_token_logprob(self, scope: Scope, name: str) -> float:
        messages = [{"role": "user", "content": FINGERPRINT_TEXT}]
        request = {"model": name, "messages": messages, "max_tokens": 1, "temperature": 0, "logprobs": True}
        answer = only_200(await call(self._app, scope, CHAT_PATH, request))
        try:
            found = float(json.loads(answer.body)["choices"][0]["logprobs"]["content"][0]["logprob"])
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise EngineFaultError(f"a chat's answer holds no number: {type(error).__name__}: {error}") from None
        if not math.isfinite(found):
            raise EngineFaultError(f"the log-probability of a chat's first token is {found}")
        return found

    async def _scores_of(self, scope: Scope, model: str, samples: Sequence[Sample]) -> list[certificate.Numbers]:
        answer = await self.scores(scope, never_disconnects, model, [*samples])
        if (complaint := caller_complaint(answer)) is not None:
            raise certificate.CannotAskError(complaint)
        try:
            data = self.read_scores(only_200(answer), model, len(samples))["data"]
        except InvalidRequestError as error:
            raise certificate.CannotAskError(str(error)) from None
        return [(*item["embedding"], *item.get("steps", ())) for item in data]

    async def _logprobs_of(self, scope: Scope, sample: list[int]) -> certificate.Numbers:
        question = teacher_wire.question(sample, top_k=min(certificate.TOP_K, self._settings.top_k))
        try:
            found = await self.logprobs(scope, never_disconnects, question)
        except teacher_wire.BadRequestError as error:
            raise certificate.CannotAskError(str(error)) from None
        if isinstance(found, CallerError):
            raise certificate.CannotAskError(found.message)
        return (*found.logprobs, *found.top_logprobs)

    def _remedy(self, cached: bool) -> str:
        engine, dtype = self._settings.engine, self._settings.dtype
        setting = setting_against(
            engine, cached=cached, chunked=False, deterministic=False, args=sys.argv, env=os.environ
        )
        if setting is not None:
            return f"set {setting}"
        return f"{engine} has no further setting against it: " + (
            "use another engine" if dtype == "float32" else "set spec.engine.dtype to float32"
        )

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
        answer = await self.scores(scope, never_disconnects, name, [head.probe])
        if answer.status == 501 or (answer.status == 404 and caller_complaint(answer) is None):
            architecture = Checkpoint.at(self._settings.model_path).architecture
            raise EngineFaultError(
                f"the engine serves {architecture} without a classification head: declare in spec.model.head where its "
                "score is, serve a checkpoint with one label, or set spec.model.type Generative for a judge"
            )
        if NOT_FINITE in answer.body.decode(errors="replace"):
            raise EngineFaultError("the engine's score is NaN or infinite: look for broken weights in the checkpoint")
        try:
            scores = self.read_scores(only_200(answer), name, 1)
        except NotOneNumberError as error:
            raise EngineFaultError(error.explain(Checkpoint.at(self._settings.model_path))) from None
        return float(scores["data"][0]["embedding"][0])

    async def _probe_logprob(self, scope: Scope) -> float:
        question = teacher_wire.question(PROBE_IDS)
        try:
            found = await self.logprobs(scope, never_disconnects, question)
        except teacher_wire.BadRequestError as error:
            raise EngineFaultError(str(error)) from None
        if isinstance(found, CallerError):
            raise EngineFaultError(found.message)
        return math.fsum(found.logprobs) / len(found.logprobs)

    async def _describe_model(self, scope: Scope) -> dict[str, Any]:
        cards = await self._list_models(scope)
        first = next(iter(cards))
        name = self._settings.served_name or first
        described = {"model": name, "max_model_len": cards.get(name, cards[first]).get("max_model_len")}
        if self._settings.model_type == "Teacher" and isinstance(described["max_model_len"], int):
            described["max_model_len"] -= FOR_MODELS[self._settings.engine].reserved_tokens
        described |= {} if self.tokenizer is None else {"tokenizer": self.tokenizer}
        return described | ({"adapters": list(self._settings.adapters)} if self._settings.adapters else {})

    async def _list_models(self, scope: Scope) -> Mapping[str, dict[str, Any]]:
        """Return what the engine says about its models, at least one, by their names in its order."""
        answer = only_200(await call(self._app, scope, "/v1/models"))
        try:
            cards = {card["id"]: card for card in json.loads(answer.body)["data"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineFaultError(f"/v1/models is not a list of models: {type(error).__name__}: {error}") from None
        if not cards:
            raise EngineFaultError("/v1/models lists no model")
        return cards


def countables(model: str, samples: list[Sample]) -> list[Countable]:
    """Return what the lengths of samples are, or are found out by."""
    return [len(sample) if isinstance(sample, list) else {"model": model, "prompt": sample} for sample in samples]


def countable_chat(request: Mapping[str, Any]) -> list[Countable]:
    """Return what a conversation's length is found out by."""
    return [{"model": request["model"], "messages": request["messages"]}] if {"model", "messages"} <= {*request} else []

"""The parts of a reward, as a config has them. What each becomes is in the module of its kind."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from rewardpool._config import FailurePolicy, PositiveSeconds, RewardConfig
from rewardpool._rewards.answers.answer_format import AnswerFormat, Output
from rewardpool._rewards.answers.reasoning import Reasoning, Tags
from rewardpool._rewards.answers.scale import Labels, Range, Rubric, Scale, Several
from rewardpool._rewards.answers.template import Template
from rewardpool._rewards.steps import SEPARATOR

T = TypeVar("T")
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=4096)]
REFERENCE_PATTERN = r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*"
PAIR_FIELDS = ("response_a", "response_b")
# Fields of a judge's prompt, with `extra_info[NAME]` and those of the mode.
COMMON_FIELDS = (
    *("answer_format", "conversation", "data_source", "high", "low", "mark", "question", "reference", "responses"),
)


def check_function(function: Any) -> Any:
    """Return a callable, or `module:function`, as it is. Raises ValueError where it is neither."""
    if not callable(function) and not (isinstance(function, str) and re.fullmatch(REFERENCE_PATTERN, function)):
        raise ValueError("must be module:function, or a function itself")
    return function


def check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """Return `(lower, upper)` as it is. Raises ValueError unless the lower bound is below the upper one."""
    if bounds[0] >= bounds[1]:
        raise ValueError("the lower bound must be below the upper one")
    return bounds


Bounds = Annotated[tuple[Finite, Finite], AfterValidator(check_bounds)]
UserFunction = Annotated[Callable[..., Any] | str, AfterValidator(check_function)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Gate(_Model):
    """A condition that the rest of the reward depends on."""

    at_least: Finite
    """The part's score, clipped, that opens the gate."""
    floor: Finite = 0.0
    """The total where the gate stays closed; the parts behind it are not asked then."""


class FixedMoments(_Model):
    """A mean and a standard deviation that are known beforehand."""

    mean: Finite
    """Is subtracted."""
    std: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Is divided by."""


class Part(_Model):
    """Fields that every part has."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    """Names the part's raw score in `Rating.components`. Default: the name of its pool or function."""
    weight: Finite = 1.0
    """The score is multiplied by it before parts are combined. A gate has none."""
    clip: Bounds | None = None
    """`[lowest, highest]`: the raw score is brought between them first."""
    normalize: Literal["group", "running"] | FixedMoments | None = None
    """Then it is brought to mean 0 and standard deviation 1 (that of a population). `group`: among the rollouts of one
    prompt, with 1e-4 added to the deviation, or a step of the model's numbers where that is larger; a group of one, or
    of scores within two such steps, becomes 0.
    `running`: by the scores of all earlier steps of the job, on all ranks; `rewardpool_train` does that.
    `{mean: x, std: y}`: by numbers that are known beforehand."""
    gate: Gate | None = None
    """Makes it a gate; for combine `gate`."""
    on_failure: FailurePolicy = "raise"
    """Policy where the part has no score. `raise`: the error. `skip`: the total is None. Or one of these for each
    fault, and for `policy` a penalty that stands for the score, such as `{policy: {penalty: -1}, verifier: skip}`; the
    component is None all the same. Default: that of the whole reward."""

    @property
    def scorer(self) -> str:
        """The scorer in words and without secrets, such as `pool rl/skywork`."""
        return self.name

    @model_validator(mode="after")
    def _gate_is_only_a_gate(self) -> Self:
        if self.gate is not None and (self.normalize is not None or "weight" in self.model_fields_set):
            raise ValueError("a gate only opens or closes: leave out weight and normalize, or gate")
        return self


class Criterion(_Model):
    """One line of a rubric."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=60)]
    """Name of its answer."""
    says: Annotated[str, Field(min_length=1)]
    """The question."""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Weight relative to the others."""


class MetaConfig(RewardConfig):
    """A reward model that scores a judge's answers, so that the best of them vote.

    Beside its own fields it has those by which its pool is found and asked.
    """

    keep: Annotated[int, Field(ge=1, le=64)]
    """Number of answers that vote: those that it scores highest."""
    tokenizer: str | None = None
    """As for a Discriminative pool's part."""
    chat_template: Path | None = None
    """As for a Discriminative pool's part."""
    system: Literal["keep", "merge", "drop"] = "keep"
    """As for a Discriminative pool's part."""

    @model_validator(mode="after")
    def _only_raises(self) -> Self:
        if self.on_failure != "raise":
            raise ValueError(
                "on_failure is the judge's part's: an answer without a score of the meta model has no vote"
            )
        return self

    def as_part(self) -> "PoolPart":
        """The part that it would be as a reward of its own."""
        client = RewardConfig(**{name: getattr(self, name) for name in RewardConfig.model_fields})
        return PoolPart(
            name="meta",
            client=client,
            type="Discriminative",
            **{name: getattr(self, name) for name in ("tokenizer", "chat_template", "system")},
        )


class ReasoningConfig(_Model):
    """Marks of a model's thoughts: one block at the very beginning of its text."""

    tags: tuple[Annotated[str, Field(min_length=1)], Annotated[str, Field(min_length=1)]] | None = None
    """The opening and the closing tag. Default: those of known models, such as `<think>` and `[THINK]`."""
    prompt_opens: bool | None = None
    """True if the model's prompts end in the opening tag, so that its text has only the closing one. Default: of a
    policy, what the trainer knows of the prompt; where it knows nothing, a response with the closing tag alone is
    refused. Of a judge, false."""

    def to_reasoning(self) -> Reasoning:
        return Reasoning(tags=None if self.tags is None else Tags(*self.tags), prompt_opens=self.prompt_opens)


class JudgeConfig(_Model):
    """Config of the questions to a Generative pool."""

    mode: Literal["pointwise", "pairwise", "listwise"] = "pointwise"
    """`pointwise`: what a response is worth. `pairwise`: which of two is better, asked in both orders; the score is the
    share of comparisons won, a tie counting half. `listwise`: what each of several responses is worth, asked in
    one prompt."""
    against: Literal["group", "reference"] = "group"
    """For pairwise: the other responses to the same prompt, or the ground truth."""
    opponents: Annotated[int, Field(ge=2, le=1024)] = 8
    """For pairwise in a group: with how many others each response is compared, at most; an odd number is one fewer."""
    together: Annotated[int, Field(ge=2, le=64)] = 8
    """For listwise: most responses in one prompt."""
    system: str | None = None
    """The system prompt; no fields in it."""
    prompt: str | None = None
    """The user's turn, with fields such as {response}. Default: a plain question."""
    range: Bounds = (1.0, 10.0)
    """For pointwise: the lowest and the highest score."""
    whole: bool = True
    """For pointwise: whether scores are whole numbers."""
    labels: Annotated[dict[str, Finite], Field(min_length=2, max_length=100)] | None = None
    """The answers and their scores, compared without case. For pointwise, instead of a range: `{correct: 1, wrong: 0}`.
    For pairwise: how much the first response wins, from 0 to 1; default `{A: 1, B: 0, tie: 0.5}`."""
    rubric: Annotated[tuple[Criterion, ...], Field(max_length=32)] = ()
    """For pointwise: criteria, each of which is answered; the score is their mean by the weights."""
    output: Output = "json"
    """The form of the answer. `json` with reasons, and a `choice` alone, are enforced by the engine. With
    `probabilities` nothing is written: the score is the mean of the answers by their probabilities as first token.
    `text` is free text that ends with the verdict in the `form`, for judges trained to it."""
    form: str | None = None
    """For output text: what the verdict stands in, such as `[[{answer}]]`, `<answer>{answer}</answer>` or
    `\\boxed{{answer}}`. Default: a last line `Score: {answer}` (pairs `Winner:`, lists `Scores:`)."""
    reasoning_characters: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Longest reasons in JSON that the engine allows, so that the score comes within `max_tokens`. 0: no reasons."""
    reasoning: ReasoningConfig = ReasoningConfig()
    """Marks of the judge's thoughts, which may precede the answer. Not needed where the engine has a reasoning parser.
    """
    votes: Annotated[int, Field(ge=1, le=64)] = 1
    """Independent answers to one question."""
    vote: Literal["median", "mean", "majority"] = "median"
    """Combination of several votes."""
    meta: MetaConfig | None = None
    """A reward model that chooses which of the votes count: it scores each answer as a response to its question."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Default: 0 for one vote, 0.7 for several. An unreadable answer is requested again at 0.7 or more."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 512
    """Tokens of one answer, its reasoning included."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Number of times that an unreadable answer is requested again, with another seed. One vote costs at most `retries`
    + 1 generations, those at workers that fail or are hedged included."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the first answer; every further one has another."""
    sampling: dict[str, Any] = {}
    """Further fields of a chat completion request, such as `top_p`. Routers drop those they do not know."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.whole and any(bound != int(bound) for bound in self.range):
            raise ValueError("range must have whole bounds, unless whole is false")
        if self.mode == "pairwise" and {"range", "whole"} & self.model_fields_set:
            raise ValueError("range and whole are not for mode pairwise, where the judge answers A, B or tie")
        if self.mode == "pairwise" and any(not 0 <= score <= 1 for score in (self.labels or {}).values()):
            raise ValueError("labels of mode pairwise say how much the first response wins, from 0 to 1")
        if self.mode == "listwise" and (self.labels is not None or self.output not in ("json", "text")):
            raise ValueError("listwise takes a range, and output json or text")
        if self.mode != "pairwise" and {"against", "opponents"} & self.model_fields_set:
            raise ValueError("against and opponents are for mode pairwise")
        if self.mode != "listwise" and "together" in self.model_fields_set:
            raise ValueError("together is for mode listwise")
        if self.form is not None and self.output != "text":
            raise ValueError("form is for output text")
        if self.rubric and (self.mode != "pointwise" or self.output != "json"):
            raise ValueError("rubric is for mode pointwise and output json")
        if len({criterion.name for criterion in self.rubric}) < len(self.rubric):
            raise ValueError("rubric has two criteria of one name")
        if self.meta is not None and (self.votes < 2 or self.meta.keep > self.votes):
            raise ValueError("meta chooses among votes: set votes to 2 or more, and keep to at most as many")
        if self.output == "probabilities" and {"votes", "temperature", "max_tokens", "retries"} & self.model_fields_set:
            raise ValueError("output probabilities asks once: leave out votes, temperature, max_tokens and retries")
        if taken := sorted(
            {"messages", "model", "response_format", "seed", "temperature", "max_tokens"} & set(self.sampling)
        ):
            raise ValueError(f"sampling must not have {taken[0]}, which is set elsewhere")
        if self.mode == "listwise":
            self.list_format(self.together)
        else:
            self.answer_format()
        if self.prompt is not None:
            try:
                self.template(self.prompt)
            except ValueError as error:
                raise ValueError(f"prompt {error}") from None
        return self

    @property
    def key(self) -> str:
        return {"pointwise": "score", "pairwise": "winner", "listwise": "scores"}[self.mode]

    @property
    def scale(self) -> Scale[float]:
        """The answers that there are. For a pair: 1 where A wins."""
        if self.mode == "pairwise":
            return Labels(self.labels or {"A": 1.0, "B": 0.0, "tie": 0.5})
        each = Range(*self.range, whole=self.whole) if self.labels is None else Labels(self.labels)
        return Rubric(each, {line.name: line.weight for line in self.rubric}) if self.rubric else each

    def answer_format(self) -> AnswerFormat[float]:
        """Return the format of an answer about one response or a pair. Raises ValueError."""
        return self._format(self.scale)

    def list_format(self, count: int) -> AnswerFormat[tuple[float, ...]]:
        """Return the format of an answer about so many responses. Raises ValueError."""
        return self._format(Several(Range(*self.range, whole=self.whole), count))

    def _format(self, scale: Scale[T]) -> AnswerFormat[T]:
        return AnswerFormat(
            self.output,
            scale,
            key=self.key,
            reasoning_characters=self.reasoning_characters,
            form=self.form,
            reasoning=self.reasoning.to_reasoning(),
        )

    def template(self, prompt: str) -> Template:
        """The prompt, checked. Raises ValueError."""
        responses = {"pointwise": ("response",), "pairwise": PAIR_FIELDS, "listwise": ("responses",)}[self.mode]
        rubric = ("rubric",) if self.rubric else ()
        fields = (*COMMON_FIELDS, *responses, *rubric)
        shown = () if "responses" in Template(prompt, fields=fields).fields else responses
        return Template(prompt, fields=fields, required=(*shown, *rubric))

    @property
    def temperature_of_votes(self) -> float:
        """`temperature`, or its default."""
        if self.temperature is None:
            return 0.7 if self.votes > 1 else 0.0
        return self.temperature


class StepsConfig(_Model):
    """Division of a response for a process reward model."""

    separator: Annotated[str, Field(min_length=1)] = SEPARATOR
    """Stands between steps of the policy's response. Each step is shown with the step token in its place."""
    token: Annotated[str, Field(min_length=1)] | None = None
    """The step token. Default: `spec.model.head.stepToken` of the pool; needed with a bare `url` only."""


class PoolPart(Part):
    """A reward pool, of any type."""

    client: RewardConfig
    """Config of the client: in a config, its fields stand beside those of the part."""
    type: Literal["Discriminative", "Generative", "Function"] | None = None
    """Type of the pool. Needed with a bare `url` only, because discovery knows it."""
    tokenizer: str | None = None
    """For Discriminative: folder or hub name of the reward model's tokenizer. Default: that of the pool's model."""
    chat_template: Path | None = None
    """For Discriminative: file with a chat template (Jinja), instead of the tokenizer's."""
    system: Literal["keep", "merge", "drop"] = "keep"
    """For Discriminative: what becomes of system messages, which some models' templates refuse. `merge` puts them in
    front of the first user's turn."""
    system_prompt: str | None = None
    """For Discriminative: the reward model's own system prompt, where its authors score with one. Takes system `merge`
    or `drop`, so that it is the only one."""
    steps: StepsConfig | None = None
    """For Discriminative: how responses are divided into steps. Default: at blank lines, where the pool's head has a
    step token; else not at all."""
    supervision: Literal["outcome", "process"] = "outcome"
    """For Discriminative, with a step token. `outcome`: the reward is one number, the aggregate that the pool declares.
    `process`: each step has its own reward, at the token where it ends; for trainers that take such rewards."""
    strip_reasoning: bool | ReasoningConfig = False
    """Leave the policy's thoughts out of what is scored; thoughts that do not end leave an empty answer."""
    judge: JudgeConfig = JudgeConfig()
    """For Generative."""

    @property
    def reasoning(self) -> Reasoning | None:
        """`strip_reasoning` as what splits responses; None where their thoughts are scored too."""
        if isinstance(self.strip_reasoning, ReasoningConfig):
            return self.strip_reasoning.to_reasoning()
        return Reasoning() if self.strip_reasoning else None

    @property
    def scorer(self) -> str:
        return f"pool {self.client.pool or self.client.url or 'of the environment'}"

    @model_validator(mode="after")
    def _one_system_prompt(self) -> Self:
        if self.system_prompt is not None and self.system == "keep":
            raise ValueError("system_prompt needs system drop or merge: there must not be the policy's own as well")
        return self

    @model_validator(mode="after")
    def _steps_stay_as_they_are(self) -> Self:
        if self.supervision == "process" and (self.normalize is not None or self.reasoning is not None):
            raise ValueError(
                "supervision process takes neither normalize, because the trainer compares steps within a group, nor"
                " strip_reasoning, because steps must be those of the whole response; leave them out"
            )
        return self


class FunctionPart(Part):
    """A Python function with verl's arguments, run in the training job."""

    function: UserFunction
    """`module:function`; called with data_source, solution_str, ground_truth and extra_info. An async one runs on the
    event loop."""
    kwargs: Mapping[str, Any] = {}
    """Further arguments; they win over those four."""
    run_in: Literal["processes", "threads"] = "processes"
    """Place where it runs. `processes`: each call in one of its own, which can be stopped; an async function on one's
    event loop. `threads`: in the job, where it shares objects with it; a thread cannot be stopped."""
    concurrency: Count | None = None
    """Calls at a time. Default: as many as there are processors, and 32 of an async function or in threads."""
    cpu_seconds: PositiveSeconds = 30.0
    """Processor time of one call, with that of the processes that it starts; beyond it the policy is at fault."""
    idle_seconds: PositiveSeconds = 30.0
    """Time in which one call could run and waits for something else. In threads, and of an async function, a call may
    take `cpu_seconds` plus `idle_seconds`."""
    memory_mib: Annotated[int, Field(ge=0)] = 4096
    """Memory of one call, beyond what the imported module has. 0: no limit."""
    calls_per_process: Annotated[int, Field(ge=0)] | None = None
    """After so many calls a process is replaced; 0: never, for a function that keeps what its first call loads.
    Default: after one, so that what a call changes or leaks is its own; never where its module imports the sandbox."""
    env: tuple[str, ...] = ()
    """Names of the job's variables that the function gets, such as HF_TOKEN, beside PATH, HOME and the like."""

    @property
    def scorer(self) -> str:
        return f"function {self.function if isinstance(self.function, str) else self.name}"


class LengthPenalty(_Model):
    """DAPO's soft overlong punishment."""

    max_tokens: Annotated[int, Field(ge=1)]
    """Length of a response from which on the whole penalty is due."""
    buffer_tokens: Annotated[int, Field(ge=1)]
    """Over so many tokens before that it grows from nothing."""
    penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Is subtracted at most."""

    @model_validator(mode="after")
    def _buffer_fits(self) -> Self:
        if self.buffer_tokens > self.max_tokens:
            raise ValueError("buffer_tokens must not be more than max_tokens")
        return self


class LengthPenaltyPart(Part):
    """A penalty for responses that are too long."""

    length_penalty: LengthPenalty
    """From where on, and how much."""

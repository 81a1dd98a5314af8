"""Errors between a trainer and its reward pool, by name.

Two families. A `SampleError` is about one sample: the failure policy decides what becomes of it. A `PoolError` or a
`ConfigError` is about the whole job: no policy hides it, because every further sample would fail the same way.

Every error keeps its parts in `args`, so that it survives pickling on its way through Ray or multiprocessing.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from rewardpool_api.contract import Fault

if TYPE_CHECKING:
    from rewardpool._logprobs import Logprobs

# Kinds of failure, finer than faults; the words of reports, metrics and logs. docs/reliability.md has them all.
FailureKind = Literal[
    "sample_too_long",
    "invalid_sample",
    "function_failed",
    "unreadable",
    "no_score",
    "refused",
    "not_found",
    "wrong_model",
    "unauthorized",
    "worker",
    "invalid_response",
    "busy",
    "waiting",
    "unreachable",
    "other_revision",
    "no_answer",
]

# Responses whose index is written out in a message.
MOST_NAMED = 20


class RewardPoolError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(RewardPoolError):
    """The configuration is wrong; it says all that is wrong with it, a line for each mistake.

    Attributes:
        problems: Paths of fields, such as `reward.pool`, each with what is wrong there.
        field: Of the first.
        problem: Of the first.
    """

    def __init__(self, field: str, problem: str, *further: tuple[str, str]) -> None:
        super().__init__(field, problem, *further)
        self.problems = ((field, problem), *further)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return "\n".join(f"{field}: {problem}" for field, problem in self.problems)


class PoolError(RewardPoolError):
    """The pool as a whole cannot be used; raised under every failure policy."""


class PoolNotFoundError(PoolError):
    """No source has a pool of that name; the message lists the sources that were read."""


class PoolAccessError(PoolError):
    """The pool, its object or its key may not be read; the message names the right that is missing."""


class PoolNotReadyError(PoolError):
    """The pool exists and cannot score now; the message has the reason its status gives."""


class PoolNotYetReadyError(PoolNotReadyError):
    """It cannot score now for a cause that passes by itself, such as an engine that starts again."""


class BrokenPoolError(PoolError):
    """Sample after sample fails in the same way and none is scored; raised under every failure policy."""


class WrongModelError(PoolError):
    """The worker serves another model than the one that was requested.

    Attributes:
        requested: The `model` of the request, or `adapter:NAME`.
        served: The worker's; None where it does not say.
    """

    def __init__(self, where: str, requested: str, served: str | None, problem: str) -> None:
        super().__init__(where, requested, served, problem)
        self.where = where
        self.requested = requested
        self.served = served
        self.problem = problem

    def __str__(self) -> str:
        serves = "serves another model" if self.served is None else f"serves the model {self.served!r}"
        remedy = (
            "correct url or served_name"
            if self.served is None
            else f"set served_name to {self.served!r}, or correct url"
        )
        return f"{self.where} {serves}, and {self.requested!r} was requested: {remedy} ({self.problem})"


class ModelChangedError(PoolError):
    """The pool serves another model than before, and what belongs to that cannot be loaded; the message says what."""


class RolloutError(RewardPoolError):
    """The policy cannot be sampled: the rollout engine did not start, answer, or take the weights."""


class TrainingError(RewardPoolError):
    """The policy cannot be trained any further: its gradients are not finite."""


class OtherRankError(RewardPoolError):
    """Another process of the training job failed, and this one does not wait for it; the message has its trouble."""


class SandboxError(RewardPoolError):
    """A policy's code could not be run to its end, by the machine's fault; another try may succeed.

    Attributes:
        fault: Is `infra`, so that a pool's function that raises it is tried at another worker.
    """

    fault: Fault = "infra"


class SandboxUnavailableError(SandboxError):
    """No sandbox can be made on this machine; the message has what it lacks."""


class SampleError(RewardPoolError):
    """One sample has no score.

    Attributes:
        sample: Its id, or its index where it has none.
        problem: What failed, in words.
        fault: Cause of the failure. Only what the policy itself wrote is `policy`.
        kind: What failed, finer than the fault.
        status: The HTTP status of a server's refusal; None without one.
    """

    fault: Fault = "infra"
    kind: FailureKind = "no_score"
    status: int | None = None

    def __init__(
        self, sample: str, problem: str, *, fault: Fault | None = None, kind: FailureKind | None = None
    ) -> None:
        super().__init__(sample, problem)
        self.sample = sample
        self.problem = problem
        # Not in `args`: pickling carries an exception's attributes too.
        if fault is not None:
            self.fault = fault
        if kind is not None:
            self.kind = kind

    def __str__(self) -> str:
        return f"sample {self.sample}: {self.problem}"


class UnscoredError(RewardPoolError):
    """Some responses of a batch have no score, and the failure policy is `raise`.

    Attributes:
        errors: Why, by the response's index in the batch.
        scores: Of the whole batch in its order; None where there is none.
    """

    def __init__(self, errors: Mapping[int, SampleError], scores: Sequence[float | None]) -> None:
        super().__init__(errors, scores)
        self.errors = errors
        self.scores = scores

    def __str__(self) -> str:
        aborted = sorted(index for index, error in self.errors.items() if isinstance(error, GroupAbortedError))
        failed = sorted(self.errors.keys() - aborted)
        with_group = f" {len(aborted)} more were given up with their group: {_named(aborted)}." if aborted else ""
        return (
            f"{len(failed)} of {len(self.scores)} responses have no score: {_named(failed)}. "
            f'The first: {self.errors[failed[0]]}.{with_group} With on_failure="skip" they have None'
        )


class LogprobsMissingError(RewardPoolError):
    """Some sequences of a batch have no log-probabilities.

    Attributes:
        errors: Why, by the sequence's index in the batch.
        answers: Of the whole batch in its order; None where there is none.
    """

    def __init__(self, errors: Mapping[int, SampleError], answers: "Sequence[Logprobs | None]") -> None:
        super().__init__(errors, answers)
        self.errors = errors
        self.answers = answers

    def __str__(self) -> str:
        failed = sorted(self.errors)
        return (
            f"{len(failed)} of {len(self.answers)} sequences have no log-probabilities: {_named(failed)}. The first: "
            f"{self.errors[failed[0]]}"
        )


def _named(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices[:MOST_NAMED])) + (", ..." if len(indices) > MOST_NAMED else "")


class GroupAbortedError(SampleError):
    """The response was given up because another one of its group, `failed`, has no score under `raise`."""

    def __init__(self, sample: str, failed: SampleError) -> None:
        super().__init__(sample, f"given up with its group, in which sample {failed.sample} has no score")
        self.args = (sample, failed)
        self.failed = failed
        self.fault = failed.fault


class SampleTooLongError(SampleError):
    """The sample has more tokens than the model takes; both lengths are in tokens, None where no server said."""

    fault: Fault = "policy"
    kind: FailureKind = "sample_too_long"

    def __init__(
        self, sample: str, length_tokens: int | None, limit_tokens: int | None, *, fault: Fault | None = None
    ) -> None:
        length = "an unknown number of" if length_tokens is None else length_tokens
        limit = "fewer" if limit_tokens is None else f"at most {limit_tokens}"
        super().__init__(sample, f"has {length} tokens and the model takes {limit}", fault=fault)
        self.args = (sample, length_tokens, limit_tokens)
        self.length_tokens = length_tokens
        self.limit_tokens = limit_tokens


class InvalidSampleError(SampleError):
    """The sample cannot be scored by any worker: malformed, or of a kind that the pool's model does not take.

    The caller made it, so its fault is `verifier`: never `policy`, which a penalty may be named for.
    """

    fault: Fault = "verifier"
    kind: FailureKind = "invalid_sample"


class ScoreError(SampleError):
    """No usable score came back: every attempt failed at a worker, or the server refused for good."""


class WrongTokenizerError(ScoreError):
    """The model that answered has another tokenizer than the one that wrote the sample's token ids.

    Attributes:
        revision: Of the workers that answered; None where they do not say.
        tokenizer: Digest of their model's tokenizer.
    """

    def __init__(self, sample: str, revision: str | None, tokenizer: str | None) -> None:
        who = f"revision {revision}" if revision else "a worker"
        super().__init__(
            sample, f"{who} answered, whose model has another tokenizer than the one that wrote the sample"
        )
        self.args = (sample, revision, tokenizer)
        self.revision = revision
        self.tokenizer = tokenizer


class RevisionGoneError(ScoreError):
    """The one revision that may score the sample serves no more, or never did.

    Attributes:
        pool: Name of the pool.
        wanted: That revision.
        found: The one that serves in its place; None where the workers do not say.
    """

    kind: FailureKind = "other_revision"

    def __init__(self, sample: str, pool: str, wanted: str, found: str | None) -> None:
        super().__init__(sample, f"revision {wanted} of {pool} is to score it, and only revision {found} answers")
        self.args = (sample, pool, wanted, found)
        self.pool = pool
        self.wanted = wanted
        self.found = found


class FunctionFailedError(ScoreError):
    """The user's reward function raised on this sample; the message has the exception's type and text."""

    fault: Fault = "verifier"
    kind: FailureKind = "function_failed"


class DeadlineError(SampleError):
    """The sample's deadline passed, over all its attempts; the message has the last attempt's trouble."""

    kind: FailureKind = "no_answer"

    def __init__(
        self,
        sample: str,
        seconds: float,
        attempts: int,
        last_problem: str,
        *,
        fault: Fault | None = None,
        kind: FailureKind | None = None,
    ) -> None:
        problem = f"no score within {seconds:g} s, its timeout, and {attempts} attempts; last: {last_problem}"
        super().__init__(sample, problem, fault=fault, kind=kind)
        self.args = (sample, seconds, attempts, last_problem)
        self.seconds = seconds
        self.attempts = attempts
        self.last_problem = last_problem

    def for_sample(self, sample: str) -> "DeadlineError":
        """Return this error for another sample of the same request."""
        return DeadlineError(sample, self.seconds, self.attempts, self.last_problem, fault=self.fault, kind=self.kind)

"""Python functions and rules as parts: run in the training job, under the same rules as on a worker."""

import json
import os
import sys

from rewardpool._rewards.episode import Episode
from rewardpool._rewards.part_config import FunctionPart, LengthPenalty
from rewardpool._rewards.reward_function import PartScore
from rewardpool._sample import FunctionSample
from rewardpool.errors import ConfigError, FunctionFailedError, InvalidSampleError
from rewardpool_runtime.functions.limits import CallLimits
from rewardpool_runtime.functions.load import FunctionLoadError
from rewardpool_runtime.functions.outcome import Failed, FunctionArguments
from rewardpool_runtime.functions.parent import environment
from rewardpool_runtime.functions.runner import FunctionRunner, ProcessRunner
from rewardpool_runtime.functions.source import FunctionSource
from rewardpool_runtime.functions.threads import ThreadRunner


class FunctionScorer:
    """Scores by a user's function. What it raises or returns in place of a number is the sample's error."""

    def __init__(self, runner: FunctionRunner) -> None:
        self._runner = runner

    async def score(self, episode: Episode) -> PartScore:
        """Return the function's number, and as info what it returned beside it. Raises SampleError without a number."""
        # By way of JSON, so that the function is called with the same values as in a pool.
        arguments = FunctionArguments(**json.loads(arguments_of(episode).to_json(episode.label)))
        outcome = await self._runner.run(arguments, label=episode.label)
        if isinstance(outcome, Failed):
            problem = f"the reward function failed: {outcome.message}"
            raise FunctionFailedError(episode.label, problem, fault=outcome.fault)
        return PartScore(outcome.value, outcome.info)


def arguments_of(episode: Episode) -> FunctionSample:
    """Return a function's arguments for an episode, in the job and in a pool alike."""
    return FunctionSample(
        data_source=episode.data_source,
        solution_str=episode.response,
        ground_truth=episode.ground_truth,
        extra_info=episode.extra_info,
    )


async def started_runner(part: FunctionPart, *, path: str) -> FunctionRunner:
    """Load the function where it is to run; the caller closes it. Raises ConfigError where that cannot be."""
    limits = CallLimits(
        cpu_seconds=part.cpu_seconds,
        idle_seconds=part.idle_seconds,
        memory_mib=part.memory_mib,
        concurrency=part.concurrency,
        calls_per_process=part.calls_per_process,
    )
    runner: FunctionRunner | None = None
    try:
        if part.run_in == "threads":
            runner = ThreadRunner(part.function, limits=limits, further=part.kwargs)
        else:
            runner = ProcessRunner(
                FunctionSource.from_function(part.function),
                limits=limits,
                env=environment(part.env, os.environ),
                further=part.kwargs,
                printed=_print,
            )
        await runner.start()
    except BaseException as error:
        if runner is not None:
            await runner.close()
        if isinstance(error, FunctionLoadError):
            raise ConfigError(f"{path}.function", str(error)) from error
        raise
    return runner


def _print(label: str, line: str) -> None:
    sys.stderr.write(f"{label}: {line}\n" if label else f"{line}\n")


class LengthPenaltyScorer:
    """DAPO's soft overlong punishment: https://arxiv.org/abs/2503.14476, equation 13, times the penalty.

    Up to max_tokens - buffer_tokens it is 0; from there it falls in a straight line to -penalty at max_tokens, and
    stays there.
    """

    def __init__(self, settings: LengthPenalty) -> None:
        self._settings = settings

    async def score(self, episode: Episode) -> PartScore:
        """Zero or less."""
        tokens = episode.response_tokens
        if tokens is None and episode.response_ids is not None:
            tokens = len(episode.response_ids)
        if tokens is None:
            raise InvalidSampleError(
                episode.label, "has neither response_tokens nor response_ids, to see how long it is"
            )
        return PartScore(length_penalty(tokens, self._settings))


def length_penalty(tokens: int, settings: LengthPenalty) -> float:
    """The punishment for a response of so many tokens, from -penalty to 0."""
    over = tokens - (settings.max_tokens - settings.buffer_tokens)
    # Compared before it is divided: a huge int does not fit into a float.
    return 0.0 - settings.penalty * (min(max(over, 0), settings.buffer_tokens) / settings.buffer_tokens)  # no -0.0

"""Rollouts from a vLLM server: every response is a request of its own, and returns as soon as it has ended.

Any number of groups run at a time, and new ones join while others run, so the server is never idle at the end of a
batch. Weights change meanwhile: running responses are kept, and continue with the new weights; each rollout has the
version and the probability of each of its tokens.
"""

import asyncio
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from safetensors import SafetensorError

from rewardpool.errors import RolloutError
from rewardpool_train.actor.data import Prompt, Trajectory
from rewardpool_train.actor.ranks import Ranks
from rewardpool_train.actor.rollout.engine import WeightSource
from rewardpool_train.actor.rollout.vllm_client import Response, Sampling, VllmAddress, VllmClient
from rewardpool_train.config import VllmConfig
from rewardpool_train.pipeline.parts import GroupTask, OnEnd

log = logging.getLogger(__name__)


class VllmEngine:
    """One rank's share of a vLLM that all ranks use; rank 0 pushes the weights.

    Args:
        encode: Returns the token ids that the policy continues.
    """

    def __init__(
        self,
        address: VllmAddress,
        *,
        settings: VllmConfig,
        ranks: Ranks,
        encode: Callable[[Prompt], Sequence[int]],
        end_ids: Sequence[int],
        max_new_tokens: int,
        temperature: float,
    ) -> None:
        self._address = address
        self._settings = settings
        self._ranks = ranks
        self._encode = encode
        self._sampling = Sampling(
            served_name=settings.served_name, end_ids=end_ids, max_new_tokens=max_new_tokens, temperature=temperature
        )
        self.version = 0

    async def roll_out(self, tasks: Sequence[GroupTask[Prompt]], on_end: OnEnd[Prompt, Trajectory]) -> None:
        """Sample every member of every task; calls may overlap. If cancelled, vLLM aborts the responses too.

        Raises:
            RolloutError: vLLM refused a request, failed on every attempt, or did not answer within the deadline.
        """
        limit = asyncio.Semaphore(self._settings.in_flight)

        async def one(client: VllmClient, task: GroupTask[Prompt], member: int, prompt_ids: Sequence[int]) -> None:
            async with limit:
                response = await client.sample(
                    self._sampling.request(prompt_ids), deadline_seconds=self._settings.response_deadline_seconds
                )
            on_end(task, member, to_rollout(response, group=task.index, member=member, prompt_ids=prompt_ids))

        try:
            async with (
                VllmClient.connect(self._address, attempts=self._settings.attempts) as client,
                asyncio.TaskGroup() as responses,
            ):
                for task in tasks:
                    prompt_ids = self._encode(task.prompt)
                    for member in range(task.size):
                        responses.create_task(one(client, task, member, prompt_ids))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def load(self, source: WeightSource, version: int) -> None:
        """Push the source's current weights; running responses continue with them. All ranks call this together.

        Raises:
            RolloutError: They could not be written to the folder, or vLLM did not load them.
            OtherRankError: It failed on rank 0.
        """
        start = time.monotonic()
        with ExitStack() as stack:
            folder = self._make_folder(stack)
            problem = self._push(source, folder, version)
            self._ranks.raise_on_all(problem)  # also makes the other ranks wait for the weights
        self.version = version
        log.debug("weights of version %d pushed in %.2f s", version, time.monotonic() - start)

    def _make_folder(self, stack: ExitStack) -> Path:
        """Create rank 0's folder for the weights, until the stack is closed; return its path on every rank."""
        folder, problem = self._settings.weights_folder, None
        if self._ranks.first:
            try:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rewardpool-", dir=folder)))
            except OSError as error:
                problem = _transfer_error(folder, error)
        self._ranks.raise_on_all(problem)
        return self._ranks.broadcast(folder)

    def _push(self, source: WeightSource, folder: Path, version: int) -> Exception | None:
        """Return the error instead of raising it, because the other ranks wait for it."""
        try:
            source.save_pretrained(folder)
            if self._ranks.first:
                asyncio.run(self._change_weights(folder, version))
        except (OSError, SafetensorError) as error:  # safetensors raises the latter if the disk is full
            return _transfer_error(folder, error)
        except Exception as error:
            return error
        return None

    async def _change_weights(self, folder: Path, version: int) -> None:
        async with VllmClient.connect(self._address) as client:
            await client.change_weights(folder, version)


def _transfer_error(folder: Path, error: Exception) -> RolloutError:
    hint = "a container's /dev/shm is often 64 MB; make it larger or name another rollout.vllm.weights_folder"
    return RolloutError(f"cannot pass weights through {folder}: {error} ({hint})")


def to_rollout(response: Response, *, group: int, member: int, prompt_ids: Sequence[int]) -> Trajectory:
    """Convert a response; its rollout has versions of single tokens only if the weights changed meanwhile."""
    changed = response.versions[0] != response.versions[-1]
    return Trajectory(
        group=group,
        member=member,
        prompt_ids=prompt_ids,
        response_ids=response.token_ids,
        ended=response.ended,
        version=response.versions[0],
        token_versions=response.versions if changed else None,
        log_probs=response.log_probs,
    )

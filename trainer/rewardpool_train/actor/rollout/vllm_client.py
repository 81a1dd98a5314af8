"""Client of a vLLM server that samples the policy: responses, and changes of weights.

`POST /inference/v1/generate` takes token ids and returns token ids, with the log-probability of each as it was sampled
and the version of the weights; it needs `--enable-scale-out`. The routes of `VLLM_SERVER_DEV_MODE=1` change weights, in
the order of `change_weights`. This is the API of vLLM 0.32; older versions lack parts of it.

    https://docs.vllm.ai/en/stable/training/rlhf.html
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from rewardpool._backoff import pause_seconds
from rewardpool.errors import RolloutError

log = logging.getLogger(__name__)

CHANGE_DEADLINE_SECONDS = 600.0  # to read new weights; a large model from a slow disk takes minutes
RESUME_DEADLINE_SECONDS = 60.0  # to resume sampling after a change of weights, whether it succeeded or not
MAX_PROBLEM_CHARACTERS = 500  # of an answer that is quoted in an error


@dataclass(frozen=True)
class SocketAddress:
    """A vLLM on this machine, behind a Unix socket. Only users who may open that file can reach it, and they may do
    anything.
    """

    path: Path


@dataclass(frozen=True)
class UrlAddress:
    """A vLLM behind HTTP.

    Attributes:
        url: Base URL, without a path.
        key: API key; None if it has none.
    """

    url: str
    key: str | None


VllmAddress = SocketAddress | UrlAddress


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Sampling parameters.

    Attributes:
        temperature: Sampling temperature. There are no other parameters, because the loss assumes that tokens were
            sampled from the policy's probabilities.
    """

    served_name: str
    end_ids: Sequence[int]
    max_new_tokens: int
    temperature: float

    def request(self, prompt_ids: Sequence[int]) -> dict[str, Any]:
        return {
            "model": self.served_name,
            "token_ids": list(prompt_ids),
            # No seed, the server has one: on a CPU, vLLM 0.32 ends with "CPU Generator does not use offset" when a
            # request with its own seed is computed again, as all are after a change of weights.
            "sampling_params": {
                "max_tokens": self.max_new_tokens,
                "temperature": self.temperature,
                "top_p": 1.0,
                "top_k": 0,
                "min_p": 0.0,
                "logprobs": 0,  # only the sampled token's
                # A vLLM that is already running may have other end tokens than the trainer.
                "ignore_eos": True,
                "stop_token_ids": list(self.end_ids),
                "detokenize": False,
            },
        }


@dataclass(frozen=True, kw_only=True)
class Response:
    """A response of vLLM.

    Attributes:
        token_ids: Shape (tokens,), including the end token if there is one.
        log_probs: Log-probability of each token, by the weights and at the temperature that sampled it, shape
            (tokens,).
        versions: Version of the weights that sampled each token, shape (tokens,).
        ended: False for a response that was cut at the length limit.
    """

    token_ids: list[int]
    log_probs: list[float]
    versions: list[int]
    ended: bool


def read_response(answer: Any) -> Response:
    """Return the response in the JSON of an answer.

    Raises:
        RolloutError: The response is missing, or lacks probabilities or versions of its tokens.
    """
    try:
        [choice] = answer["choices"]
        spans = choice["weight_versions"]
        response = Response(
            token_ids=[int(token) for token in choice["token_ids"]],
            log_probs=[float(token["logprob"]) for token in choice["logprobs"]["content"]],
            versions=[int(span["version"]) for span in spans for _ in range(span["start"], span["end"])],
            ended=choice["finish_reason"] == "stop",
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RolloutError(f"vLLM's answer is not one of 0.32 or newer ({error!r}): {_excerpt(answer)}") from error
    finished = choice["finish_reason"] in ("stop", "length")
    if not finished or not len(response.token_ids) == len(response.log_probs) == len(response.versions) > 0:
        raise RolloutError(f"vLLM aborted a response, or left parts of it out: {_excerpt(answer)}")
    return response


class VllmClient:
    """Client of one server, for the event loop that created it."""

    def __init__(self, session: aiohttp.ClientSession, *, attempts: int) -> None:
        self._session = session
        self._attempts = attempts

    @classmethod
    @asynccontextmanager
    async def connect(cls, address: VllmAddress, *, attempts: int = 1) -> AsyncIterator["VllmClient"]:
        """Yield a client; `attempts` is the maximum per response."""
        options: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=None)}  # every call has its own deadline
        if isinstance(address, SocketAddress):
            connector: aiohttp.BaseConnector = aiohttp.UnixConnector(str(address.path), limit=0)
            base = "http://vllm"
        else:
            connector, base = aiohttp.TCPConnector(limit=0), address.url
            if address.key is not None:
                options["headers"] = {"Authorization": f"Bearer {address.key}"}
        async with aiohttp.ClientSession(base, connector=connector, **options) as session:
            yield cls(session, attempts=attempts)

    async def is_healthy(self) -> bool:
        try:
            async with asyncio.timeout(5), self._session.get("/health") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def sample(self, request: dict[str, Any], *, deadline_seconds: float) -> Response:
        """Return the response to a request; if cancelled, the server aborts it too.

        Raises:
            RolloutError: It refused the request, failed on every attempt, or did not respond within the deadline, which
                is for all attempts together.
        """
        async with _deadline(deadline_seconds, "gave no response"):
            return read_response(await self._post("/inference/v1/generate", attempts=self._attempts, json=request))

    async def change_weights(self, folder: Path, version: int) -> None:
        """Load the weights in a folder, in safetensors files named as in Hugging Face's format.

        Running responses pause between two tokens, and continue with the new weights, which compute the keys and values
        of their tokens again.

        Raises:
            RolloutError: It did not load them, or not within 10 minutes; running responses continue with the old ones.
        """
        async with _deadline(CHANGE_DEADLINE_SECONDS, "did not take the weights"):
            await self._post("/pause", params={"mode": "keep", "clear_cache": "true"})
            try:
                reload = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
                await self._post("/collective_rpc", json=reload)
                await self.set_weight_version(version)
            finally:
                async with _deadline(RESUME_DEADLINE_SECONDS, "did not go on after a change of weights"):
                    await self._post("/resume")

    async def set_weight_version(self, version: int) -> None:
        """Set the version of the current weights; vLLM attributes each token to the version at the time it is
        sampled.
        """
        await self._post("/update_weight_version", json={"new_version": str(version)})

    async def _post(self, path: str, *, attempts: int = 1, **what: Any) -> Any:
        """Post, and return the JSON of the answer; failures that another attempt may repair are retried."""
        for attempt in range(1, attempts + 1):
            try:
                async with self._session.post(path, **what) as answer:
                    if answer.status == 200:
                        return await answer.json()
                    problem = f"HTTP {answer.status}: {_excerpt(await answer.text())}"
                    final = answer.status < 500 and answer.status != 429
            except aiohttp.ClientError as error:
                problem, final = repr(error), False
            if final or attempt == attempts:
                break
            pause = pause_seconds(attempt, uniform=random.uniform)
            log.warning("vLLM: %s %s; attempt %d of %d in %.1f s", path, problem, attempt + 1, attempts, pause)
            await asyncio.sleep(pause)
        raise RolloutError(f"vLLM: {path}: {problem}")


@asynccontextmanager
async def _deadline(seconds: float, what: str) -> AsyncIterator[None]:
    """Raise RolloutError if the block is not left in time; `what` says how vLLM failed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RolloutError(f"vLLM {what} within {seconds:g} s") from error


def _excerpt(answer: object) -> str:
    return str(answer)[:MAX_PROBLEM_CHARACTERS]

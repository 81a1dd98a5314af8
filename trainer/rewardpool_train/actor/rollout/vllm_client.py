"""What is said to a vLLM server that samples the policy: one response, and one change of weights.

`POST /inference/v1/generate` takes token ids and returns token ids with the log-probability of each as it was sampled
and the version of the weights that did it; it is there with `--enable-scale-out`. Weights are changed by the routes of
`VLLM_SERVER_DEV_MODE=1`, in the order that `change_weights` has. All of it is as in vLLM 0.32; older ones lack parts.

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

from rewardpool.backoff import pause_seconds
from rewardpool.errors import RolloutError

log = logging.getLogger(__name__)

CHANGE_DEADLINE_SECONDS = 600.0
"""For vLLM to read new weights; a large model from a slow disk takes minutes."""
RESUME_DEADLINE_SECONDS = 60.0
"""For it to go on with what it had under way, whatever became of the weights."""
MAX_PROBLEM_CHARACTERS = 500
"""Of an answer that is quoted in an error."""


@dataclass(frozen=True)
class SocketAddress:
    """A vLLM on this machine, behind a Unix socket; who may open that file may do anything to it, and nobody else."""

    path: Path


@dataclass(frozen=True)
class UrlAddress:
    """A vLLM behind HTTP.

    Attributes:
        url: Without a path.
        key: Its API key, None where it has none.
    """

    url: str
    key: str | None


VllmAddress = SocketAddress | UrlAddress


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How responses are sampled.

    Attributes:
        served_name: Of the policy at the server.
        end_ids: Token ids that end a response.
        max_new_tokens: Length limit of a response.
        temperature: Of the sampling; nothing else shapes it, because the loss takes the policy's probabilities to be
            those that were sampled from.
    """

    served_name: str
    end_ids: Sequence[int]
    max_new_tokens: int
    temperature: float

    def request(self, prompt_ids: Sequence[int]) -> dict[str, Any]:
        """Return what asks for one response to a prompt.

        There is no seed in it: on a CPU, vLLM 0.32 ends with "CPU Generator does not use offset" when a request with
        a seed of its own is computed again, as all are after a change of weights. `--seed` does for the server.
        """
        return {
            "model": self.served_name,
            "token_ids": list(prompt_ids),
            "sampling_params": {
                "max_tokens": self.max_new_tokens,
                "temperature": self.temperature,
                "top_p": 1.0,
                "top_k": 0,
                "min_p": 0.0,
                "logprobs": 0,  # only the sampled token's
                # A vLLM that runs already may know other end tokens than the trainer.
                "ignore_eos": True,
                "stop_token_ids": list(self.end_ids),
                "detokenize": False,
            },
        }


@dataclass(frozen=True, kw_only=True)
class Response:
    """What vLLM answered.

    Attributes:
        token_ids: Shape (tokens,), the end token included where there is one.
        log_probs: Of each token, by the weights and at the temperature that sampled it, shape (tokens,).
        versions: Of the weights that sampled each token, shape (tokens,).
        ended: Whether it ended by itself.
    """

    token_ids: list[int]
    log_probs: list[float]
    versions: list[int]
    ended: bool


def read_response(answer: Any) -> Response:
    """Return the response in the JSON of an answer.

    Raises:
        RolloutError: It has none, or one without probabilities or versions of all of its tokens.
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
        raise RolloutError(f"vLLM gave up on a response, or left parts of it out: {_excerpt(answer)}")
    return response


class VllmClient:
    """Talks to one server, on the event loop that it was made on."""

    def __init__(self, session: aiohttp.ClientSession, *, attempts: int) -> None:
        self._session = session
        self._attempts = attempts

    @classmethod
    @asynccontextmanager
    async def connect(cls, address: VllmAddress, *, attempts: int = 1) -> AsyncIterator["VllmClient"]:
        """Yield a client; `attempts` are for one response."""
        options: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=None)}  # every call has a deadline of its own
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
        """Return whether the server answers that it is well."""
        try:
            async with asyncio.timeout(5), self._session.get("/health") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def sample(self, request: dict[str, Any], *, deadline_seconds: float) -> Response:
        """Return the response to a request; cancelled, the server gives it up too.

        Raises:
            RolloutError: It refused the request, failed on every attempt, or gave no response within the deadline,
                which is for all attempts together.
        """
        async with _deadline(deadline_seconds, "gave no response"):
            return read_response(await self._post("/inference/v1/generate", attempts=self._attempts, json=request))

    async def change_weights(self, folder: Path, version: int) -> None:
        """Have the server take the weights in a folder, in safetensors files named as in Hugging Face's format.

        Responses under way are kept: they stop between two tokens, and go on from there with the new weights, what
        they have so far computed again by them. No result of the old weights stays in a cache.

        Raises:
            RolloutError: It did not take them, or not within 10 minutes; the responses under way go on with the old
                ones.
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
        """Have the server call its weights so; it counts tokens towards the name of the time they are sampled at."""
        await self._post("/update_weight_version", json={"new_version": str(version)})

    async def _post(self, path: str, *, attempts: int = 1, **what: Any) -> Any:
        """Post, and return the JSON that comes back; another attempt follows a failure that it may repair."""
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
    """Raises RolloutError when the block is not left in time; `what` says how vLLM failed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RolloutError(f"vLLM {what} within {seconds:g} s") from error


def _excerpt(answer: object) -> str:
    return str(answer)[:MAX_PROBLEM_CHARACTERS]

"""Conversations written for the model that scores them, also after the pool serves another one.

    written by the tokenizer in use -> a worker's model has that tokenizer: its score
                                    -> has another one: the pool is looked up, that model's tokenizer loaded and
                                       compared with the worker's, the conversation written anew and asked again

During a rollout workers of two revisions answer, so both tokenizers are kept.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from rewardpool._client.pool import Pool
from rewardpool._discovery.endpoint import ServedModel
from rewardpool._rewards.chat.chat_template import ChatTokenizer
from rewardpool.errors import ConfigError, ModelChangedError, WrongTokenizerError

log = logging.getLogger(__name__)

# Time for the pool's object to name the model that answers, and for its files to be those that the workers have.
RELOAD_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class ConversationWriter:
    """Writes conversations for the models that have one tokenizer."""

    chat: ChatTokenizer
    tokenizer: str | None
    """Digest of those models' tokenizer; None until a worker has said it."""
    separator: str | None = None
    """Stands between the steps of a response; None where the model scores no steps."""
    # Awaited after each score, where the user gave the tokenizer. Raises ConfigError where it is another model's.
    check: Callable[[], Awaitable[None]] | None = None


class Writers:
    """The writers for the models of one pool.

    Args:
        first: For the model that the pool serves now.
        load: Makes the writer for another model. Raises ConfigError or PoolError.
    """

    def __init__(
        self,
        pool: Pool,
        first: ConversationWriter,
        load: Callable[[ServedModel], Awaitable[ConversationWriter]],
    ) -> None:
        self.current = first
        self._pool = pool
        self._load = load
        self._lock = asyncio.Lock()
        self._known = {first.tokenizer: first} if first.tokenizer else {}
        # Reasons for a missing writer, by the tokenizer's digest.
        self._problems: dict[str, str] = {}

    def answered(self, writer: ConversationWriter, tokenizer: str | None) -> None:
        """Learn from the first score whose tokenizer the writer's is, where that was not known.

        Raises:
            WrongTokenizerError: Another score said so first, and of another tokenizer.
        """
        if writer.tokenizer is not None or tokenizer is None:
            return
        known = next((one.tokenizer for one in self._known.values() if one.chat is writer.chat), None)
        if known is None:
            self.current = self._known[tokenizer] = replace(writer, tokenizer=tokenizer)
        elif known != tokenizer:
            raise WrongTokenizerError("(unnamed)", None, tokenizer)

    async def change(self, answer: WrongTokenizerError) -> None:
        """Write for the model that answered from now on.

        Raises:
            ModelChangedError: Its tokenizer cannot be loaded; the message says what changed.
            PoolError: The pool cannot be used.
        """
        wanted = answer.tokenizer
        if wanted is None:
            return
        async with self._lock:
            if wanted in self._problems:
                raise ModelChangedError(self._problems[wanted])
            if wanted not in self._known:
                log.warning(
                    "reward pool %s: revision %s answers, whose model has another tokenizer; loading it",
                    self._pool.endpoint.pool,
                    answer.revision,
                )
                self._known[wanted] = await self._loaded(wanted, answer.revision)
            self.current = self._known[wanted]

    async def _loaded(self, wanted: str, revision: str | None) -> ConversationWriter:
        until = time.monotonic() + RELOAD_SECONDS
        while True:
            await self._pool.look_up()
            problem = f"its status names no revision {revision} yet"
            if model := _model_of(self._pool.endpoint.revisions, revision, wanted):
                try:
                    writer = await self._load(model)
                except ModelChangedError as error:
                    problem, until = str(error), float("-inf")
                except ConfigError as error:  # files that are being written
                    problem = str(error)
                else:
                    if writer.tokenizer == wanted:
                        return writer
                    problem = f"{model.source} has here the tokenizer {writer.tokenizer}"
            if time.monotonic() >= until:
                break
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        before = ", ".join(self._known) or "none that is known"
        self._problems[wanted] = (
            f"{self._pool.endpoint.pool} serves another model: its revision {revision} has the tokenizer {wanted}, and"
            f" samples were written with {before}; {problem}"
        )
        raise ModelChangedError(self._problems[wanted])


def _model_of(models: tuple[ServedModel, ...], revision: str | None, tokenizer: str) -> ServedModel | None:
    """The revision's model; where only the tokenizer is known, one that has it."""
    by_name = next((one for one in models if one.revision == revision), None)
    return by_name or next((one for one in models if one.tokenizer == tokenizer), None)

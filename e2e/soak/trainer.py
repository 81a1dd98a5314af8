"""`rewardpool_train` with a witness: `python -m soak.trainer CONFIG FOLDER`, by torchrun.

Every process writes FOLDER/LIFE.jsonl, whose lines are
    {"at": seconds since 1970, "asked": the sample's name, "text": its response}
    {"at": …, "answered": the name, "score": its reward or null, "attempts": requests, "given_up": false, "error": null}
    {"at": …, "ended": the error that ended the process by itself}
A life is `rank-NUMBER-TIME`, so that lives sort by the time they began.
"""

import json
import os
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

from rewardpool._client.pool import Pool
from rewardpool._rewards.blocking import BlockingReward
from rewardpool._rewards.episode import Episode
from rewardpool._rewards.rating import Rating
from rewardpool._sample import Outcome, Sample
from rewardpool.errors import RewardPoolError
from rewardpool_train import job as train


class Witness:
    """Writes lines; any thread may call it."""

    def __init__(self, folder: Path) -> None:
        life = f"rank-{os.environ.get('RANK', '0')}-{time.time_ns()}"
        # A line at a time: what is written outlives kill -9.
        self._out = (folder / f"{life}.jsonl").open("w", buffering=1)
        self._lock = threading.Lock()
        self._attempts: dict[str | None, int] = {}

    def write(self, **line: Any) -> None:
        """Add a line."""
        with self._lock:
            self._out.write(json.dumps({"at": round(time.time(), 3), **line}) + "\n")

    def watch(self) -> None:
        """See from now on what the reward is asked, and what it and its pool's client answer."""
        submit, outcome_of = BlockingReward.submit, Pool._outcome

        def submit_seen(reward: BlockingReward, episode: Episode) -> "Future[Rating]":
            self.write(asked=episode.label, text=episode.response)
            rating = submit(reward, episode)
            rating.add_done_callback(lambda done: self._answered(episode.label, done))
            return rating

        async def outcome_seen(pool: Pool, sample: Sample) -> Outcome:
            outcome = await outcome_of(pool, sample)
            self._attempts[sample.id] = outcome.attempts
            return outcome

        setattr(BlockingReward, "submit", submit_seen)  # noqa: B010 - a method is put into another's place
        setattr(Pool, "_outcome", outcome_seen)  # noqa: B010

    def _answered(self, name: str, done: "Future[Rating]") -> None:
        score, error, given_up = None, None, False
        try:
            rating = done.result()
            score, error = rating.total, None if rating.error is None else str(rating.error)
        except CancelledError:
            given_up = True
        except Exception as problem:  # whatever the trainer is told, the ledger is told
            error = f"{type(problem).__name__}: {problem}"
        attempts = self._attempts.pop(name, None)
        self.write(answered=name, score=score, attempts=attempts, given_up=given_up, error=error)


def main() -> int:
    """Train; returns the exit status of `rewardpool_train`."""
    config, folder = sys.argv[1:]
    witness = Witness(Path(folder))
    witness.watch()
    trained = train.train

    def train_seen(*arguments: Any) -> int:
        try:
            return trained(*arguments)
        except RewardPoolError as error:
            witness.write(ended=f"{type(error).__name__}: {error}")
            raise

    setattr(train, "train", train_seen)  # noqa: B010
    return train.main([config])


if __name__ == "__main__":
    sys.exit(main())

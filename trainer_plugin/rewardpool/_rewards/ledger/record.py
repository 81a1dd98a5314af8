"""One line of a ledger: scorer, and number or fault. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from rewardpool._rewards.episode import Episode
from rewardpool._rewards.part_config import JudgeConfig
from rewardpool._rewards.reward_function import PartScore
from rewardpool.errors import SampleError
from rewardpool_runtime.json_values import NotJsonError, json_value

HASH_BYTES: Final = 16
# Characters that are kept of a failure's message.
MOST_PROBLEM: Final = 500


@dataclass(frozen=True, kw_only=True)
class LedgerScorer:
    """Scorer of a part.

    Attributes:
        part: Its name.
        pool: That it asks; None where it is a function or rule of the job.
        commits: What the model of each of the pool's revisions is pinned to.
        judge: Hash of what a judge is asked by; None for other parts.
        seed: Of the judge's first answer.
    """

    part: str
    pool: str | None = None
    commits: Mapping[str, str | None]
    judge: str | None = None
    seed: int | None = None


class LedgerEntry(NamedTuple):
    """Result of a part for an episode; made for every score, on the reward's loop."""

    at: float
    """Seconds since 1970."""
    scorer: LedgerScorer
    episode: Episode
    outcome: PartScore | SampleError
    seconds: float
    """Seconds from the part's turn to its score, queueing and retries included."""
    revisions: Sequence[str]
    workers: Sequence[str]


def line_of(entry: LedgerEntry, *, text: bool) -> bytes:
    """Return the line of an entry, with its prompt and response in words where `text` says so."""
    episode, outcome, scorer = entry.episode, entry.outcome, entry.scorer
    prompt = _bytes(episode.prompt)
    answer = _bytes(episode.response if episode.turns is None else episode.turns)
    prompt_hash = hashlib.blake2b(prompt, digest_size=HASH_BYTES)
    response_hash = prompt_hash.copy()
    response_hash.update(b"\0" + answer)
    record: dict[str, Any] = {
        "at": round(entry.at, 3),
        "id": episode.id,
        "prompt_hash": prompt_hash.hexdigest(),
        "response_hash": response_hash.hexdigest(),
        "group": episode.group if isinstance(episode.group, str | int) else None,
        "version": episode.version,
        "part": scorer.part,
        "score": outcome.value if isinstance(outcome, PartScore) else None,
        "pool": scorer.pool,
        "revisions": list(entry.revisions),
        "commit": scorer.commits.get(entry.revisions[0]) if len(entry.revisions) == 1 else None,
        "workers": list(entry.workers),
        "judge": scorer.judge,
        "seed": scorer.seed,
        "attempts": _attempts(outcome, is_judge=scorer.judge is not None),
        "seconds": round(entry.seconds, 4),
    }
    if isinstance(outcome, SampleError):
        record |= {"fault": outcome.fault, "kind": outcome.kind}
    if text:
        if isinstance(outcome, SampleError):
            record["problem"] = outcome.problem[:MOST_PROBLEM].encode(errors="replace").decode()
        # What JSON cannot hold is not kept in another form: that would be scored again as if it were the original.
        with suppress(NotJsonError, TypeError):
            return _json(record | _texts(episode)) + b"\n"
    return _dumped(record) + b"\n"


def hash_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=HASH_BYTES).hexdigest()


def judge_hash(judge: JudgeConfig) -> str:
    """Return the hash of what decides how a judge is asked and read."""
    return hash_of(judge.model_dump_json(exclude={"seed"}).encode())


def _texts(episode: Episode) -> dict[str, Any]:
    """Return what is scored, as a function of a pool would get it. Raises NotJsonError."""
    known = {
        "prompt": episode.prompt,
        "response": episode.response,
        "turns": episode.turns,
        "ground_truth": episode.ground_truth,
        "data_source": episode.data_source or None,
        "extra_info": dict(episode.extra_info) or None,
    }
    return {name: json_value(value, name) for name, value in known.items() if value is not None}


def _attempts(outcome: PartScore | SampleError, *, is_judge: bool) -> int | None:
    found = getattr(outcome, "attempts", None)
    if found is None and is_judge and isinstance(outcome, PartScore):
        found = outcome.info.get("requests")
    return found if isinstance(found, int) else None


def _bytes(said: Any) -> bytes:
    return said.encode(errors="replace") if isinstance(said, str) else _dumped(said)


def _dumped(value: Any) -> bytes:
    """Return a value as JSON; what JSON has not, as its text."""
    try:
        return _json(value)
    except TypeError:  # half of a character, or too deep
        return _json({key: _or_text(one) for key, one in value.items()} if isinstance(value, dict) else _or_text(value))


def _or_text(value: Any) -> Any:
    try:
        _json(value)
    except TypeError:
        return repr(value).encode("ascii", errors="backslashreplace").decode()
    return value


def _json(value: Any) -> bytes:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) else str(value)

"""Facts from a checkpoint's own files."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from rewardpool_api.teacher_wire import vocabulary_digest, vocabulary_in
from rewardpool_api.tokenizer_files import FILES, digest_of_files

log = logging.getLogger("rewardpool.worker")


@dataclass(frozen=True)
class Checkpoint:
    """Facts of a checkpoint's config.json; the defaults stand for one that cannot be read."""

    architecture: str = "the model"
    labels: tuple[str, ...] = ()
    hidden_size: int | None = None
    vocabulary_size: int | None = None

    @classmethod
    def at(cls, path: str) -> "Checkpoint":
        """Read it in a folder, or in the hub's cache where the engine has put it."""
        try:
            config = json.loads(_config_file(path).read_bytes())
            labels = config.get("id2label") or {}
            # Models that take pictures have a part for each kind of input.
            size = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
            return cls(
                architecture=str((config.get("architectures") or [cls.architecture])[0]),
                labels=tuple(str(labels[index]) for index in sorted(labels, key=int)),
                hidden_size=config.get("hidden_size"),
                vocabulary_size=size if isinstance(size, int) else None,
            )
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("the checkpoint's config.json cannot be read: %s: %s", type(error).__name__, error)
            return cls()


def _config_file(path: str) -> Path:
    if (folder := Path(path)).is_dir():
        return folder / "config.json"
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(path, "config.json")
    if not isinstance(found, str):
        raise FileNotFoundError(f"{path} is neither a folder nor in the hub's cache")
    return Path(found)


def tokenizer_digest(path: str) -> str | None:
    """Return a digest of a checkpoint's tokenizer and chat template; None where there is none to be read."""
    try:
        # For trainers, to know whether the token ids that they write are this model's.
        folder = _config_file(path).parent
        return digest_of_files(lambda name: (folder / name).read_bytes() if (folder / name).is_file() else None)
    except (OSError, ValueError, ImportError) as error:
        log.warning("the tokenizer's files cannot be read, so answers name none: %s", error)
        return None


def vocabulary_digest_at(path: str) -> str | None:
    """Return the digest of a checkpoint's vocabulary; None where there is no tokenizer.json to read it from."""
    try:
        folder = _config_file(path).parent
        config = folder / "tokenizer_config.json"
        vocabulary = vocabulary_in((folder / FILES[0]).read_bytes(), config.read_bytes() if config.is_file() else None)
    except (OSError, ValueError, ImportError) as error:
        log.warning("the vocabulary cannot be read, so answers name none: %s", error)
        return None
    return vocabulary_digest(vocabulary)

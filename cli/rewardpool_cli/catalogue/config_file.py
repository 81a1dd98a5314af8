"""Sources of a model's config.json: a folder, or the Hugging Face hub by its own library."""

import json
from pathlib import Path
from typing import Any

from rewardpool_api import parse_source
from rewardpool_cli.catalogue.from_config import CannotServeError

FILE = "config.json"


class ConfigUnavailableError(RuntimeError):
    """config.json cannot be had; the text says why and what to do."""


def read_config(source: str, *, revision: str) -> dict[str, Any]:
    """A model's config.json.

    Args:
        source: `hf://ORG/NAME` or `file:///PATH`.
        revision: Branch, tag or commit of an `hf://` model.

    Raises:
        CannotServeError: it is not a JSON object, or the source is of another kind.
        ConfigUnavailableError: it is not there, or the hub does not give it out or cannot be reached.
    """
    parsed = parse_source(source)
    match parsed.scheme:
        case "hf":
            path = _downloaded(parsed.location, revision)
        case "file":
            path = Path(parsed.location) / FILE
        case _:
            raise CannotServeError(f"--model must be hf://ORG/NAME or file:///PATH, not {source}")
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise ConfigUnavailableError(f"{path}: {error.strerror}; a model's folder has its {FILE}") from None
    except ValueError as error:
        raise CannotServeError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise CannotServeError(f"{path} must have a JSON object, not {type(config).__name__}")
    return config


def _downloaded(repository: str, revision: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download  # comes with the extra `download` only
        from huggingface_hub.errors import (
            EntryNotFoundError,
            GatedRepoError,
            HfHubHTTPError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ModuleNotFoundError:
        raise ConfigUnavailableError(
            "asking the hub needs `pip install huggingface-hub`; or download the model and give its folder as"
            " --model file:///PATH"
        ) from None
    try:
        return Path(hf_hub_download(repository, FILE, revision=revision))
    except GatedRepoError:
        words = f"accept the conditions of {repository} on its page at the hub, and set HF_TOKEN"
    except RepositoryNotFoundError:
        words = f"the hub shows no model {repository}: check --model; if it is private, set HF_TOKEN"
    except RevisionNotFoundError:
        words = f"{repository} has no revision {revision}: check --revision"
    except LocalEntryNotFoundError:
        # Before EntryNotFoundError, of which it is a kind: there it is the hub that is missing.
        words = f"the hub cannot be reached, and {FILE} of {repository} is not in its cache here"
    except EntryNotFoundError:
        words = f"{repository} has no {FILE}: it is not a model that an engine loads"
    except (HfHubHTTPError, OSError) as error:
        words = f"the hub does not give out {FILE} of {repository}: {str(error).splitlines()[0]}"
    raise ConfigUnavailableError(f"{words}; or download the model and give its folder as --model file:///PATH")

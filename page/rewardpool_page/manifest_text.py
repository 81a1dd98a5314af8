"""A pool's manifest as the page shows it: YAML, without its status and without what may be secret."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from rewardpool_api.documents import write_document
from rewardpool_page.source import NotShownError
from rewardpool_runtime.untrusted import NONSENSE

HIDDEN: Final = "[hidden]"
MAX_BYTES: Final = 256 << 10
_METADATA: Final = ("name", "namespace", "labels")  # annotations may hold the whole manifest once more
_SECRET_FLAG: Final = re.compile(r"(--?(?:[\w-]*[_-])?(?:key|token|secret|password))(=.*)?", re.IGNORECASE | re.DOTALL)


def shown(manifest: Mapping[str, Any]) -> str:
    """Return it as YAML; a literal value of a variable, a header or a flag such as `--api-key` is `[hidden]`.

    Raises:
        NotShownError: It is too large, or malformed.
    """
    try:
        metadata = manifest["metadata"]
        chosen = {
            "apiVersion": manifest["apiVersion"],
            "kind": manifest["kind"],
            "metadata": {name: metadata[name] for name in _METADATA if metadata.get(name)},
            "spec": _without_values(manifest["spec"]),
        }
        if len(json.dumps(chosen)) > MAX_BYTES:
            raise NotShownError(f"the manifest has more than {MAX_BYTES >> 10} KiB; kubectl shows it")
        return write_document(chosen)
    except NONSENSE as error:
        raise NotShownError(f"the manifest is malformed ({type(error).__name__}); kubectl shows it") from None


def _without_values(part: Any) -> Any:
    if isinstance(part, list):
        hidden = [_without_values(one) for one in part]
        return [
            HIDDEN if at and isinstance(one, str) and _names_a_secret(part[at - 1]) else one
            for at, one in enumerate(hidden)
        ]
    if isinstance(part, dict):
        is_pair = isinstance(part.get("name"), str) and isinstance(part.get("value"), str)
        return {name: HIDDEN if is_pair and name == "value" else _without_values(one) for name, one in part.items()}
    found = _SECRET_FLAG.fullmatch(part) if isinstance(part, str) else None
    return f"{found[1]}={HIDDEN}" if found and found[2] else part


def _names_a_secret(before: Any) -> bool:
    """Return whether this is a flag that takes what is after it for its value."""
    found = _SECRET_FLAG.fullmatch(before) if isinstance(before, str) else None
    return found is not None and found[2] is None

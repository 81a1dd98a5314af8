"""The pool's key, changed while it is in use."""

import time
from base64 import b64decode

from faults.manifests import POOL
from faults.stage import Stage
from rewardpool_api import names
from scene import StoryError


def rotate_the_key(stage: Stage) -> str:
    """A new key is asked for by annotation: routers, workers and trainers change to it while they work."""
    stage.shape(workers=2, routers=2)
    old = keys(stage)[names.SECRET_KEY]
    request = str(time.time_ns())
    stage.kubectl("annotate", "rewardpool", POOL, f"{names.ANNOTATION_ROTATE_KEY}={request}", "--overwrite")
    done = {"phase": "Done", "request": request}
    seconds = stage.until(
        lambda: done.items() <= stage.pool()["status"]["auth"].get("rotation", {}).items(),
        what="the key is another",
        deadline_seconds=240,
    )
    after = keys(stage)
    if after.keys() != {names.SECRET_KEY} or after[names.SECRET_KEY] == old:
        raise StoryError(f"the rotation is done and the Secret has the entries {sorted(after)}")
    stage.settle()
    return f"done after {seconds:.0f} s"


def keys(stage: Stage) -> dict[str, str]:
    """The entries of the pool's key Secret."""
    (secret,) = (found for found in stage.objects("secrets") if found["metadata"]["name"] == names.key_secret(POOL))
    return {name: b64decode(value).decode() for name, value in secret["data"].items()}


FAULTS = (rotate_the_key,)

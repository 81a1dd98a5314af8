"""Settings of a worker: its environment variables, read once."""

import json
import math
import os
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rewardpool_api import names
from rewardpool_api.engines import FOR_MODELS, EngineName
from rewardpool_api.teacher_wire import DEFAULT_TOP_K
from rewardpool_worker.engine_side.middleware.heads import Head
from rewardpool_worker.engine_side.middleware.routes import ANSWERED_PATH


@dataclass(frozen=True)
class Settings:
    """Settings of the worker; every value from one environment variable."""

    key_file: Path | None = None
    """REWARDPOOL_KEY_FILE. None: anybody who reaches the port may score."""
    model_type: str = "Discriminative"
    top_k: int = DEFAULT_TOP_K
    served_name: str = ""
    """REWARDPOOL_SERVED_NAME: the `model` of the probe. Empty: what the engine lists first."""
    engine: EngineName = "vllm"
    model_path: str = ""
    revision: str = ""
    """REWARDPOOL_REVISION: the pool's revision that this worker is of. Empty: answers name none."""
    adapters: tuple[str, ...] = ()
    """REWARDPOOL_ADAPTERS, of which the names: LoRA adapters that score beside the model itself."""
    head: Head = field(default_factory=Head)
    """REWARDPOOL_HEAD: `spec.model.head` as JSON. Absent: the model has one label."""
    max_body_bytes: int = 16 * 1024 * 1024
    probe_seconds: float = 30.0
    dtype: str = "auto"
    certificate_seconds: float = 20.0
    """REWARDPOOL_CERTIFICATE_SECONDS: deadline of the certificate before the worker is ready first; 0 asks for none."""
    sleep_max_abs_diff: float | None = None
    """REWARDPOOL_SLEEP_MAX_ABS_DIFF: by which a woken engine's numbers may differ from those before. None: it never
    sleeps."""

    def __post_init__(self) -> None:
        if self.model_type not in ANSWERED_PATH:
            raise ValueError(
                f"{names.ENV_MODEL_TYPE} must be Discriminative, Generative or Teacher, not {self.model_type!r}"
            )
        if self.engine not in FOR_MODELS:
            raise ValueError(f"{names.ENV_ENGINE} must be one of {', '.join(FOR_MODELS)}, not {self.engine!r}")
        if self.max_body_bytes <= 0 or self.probe_seconds <= 0 or self.top_k <= 0:
            raise ValueError(
                "REWARDPOOL_MAX_BODY_BYTES, REWARDPOOL_PROBE_SECONDS and REWARDPOOL_TOP_K must be greater than 0"
            )
        if not 0 <= self.certificate_seconds < math.inf:
            raise ValueError(f"{names.ENV_CERTIFICATE_SECONDS} must be 0 or more seconds")

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] | None = None) -> "Settings":
        """Read the settings.

        Raises:
            ValueError: a value is not what its variable takes; the text names the variable.
        """
        environ = os.environ if environ is None else environ
        key_file = environ.get(names.ENV_KEY_FILE)
        return cls(
            key_file=Path(key_file) if key_file else None,
            model_type=environ.get(names.ENV_MODEL_TYPE, cls.model_type),
            top_k=_number(environ, names.ENV_TOP_K, int, cls.top_k),
            served_name=environ.get(names.ENV_SERVED_NAME, cls.served_name),
            engine=cast("EngineName", environ.get(names.ENV_ENGINE, cls.engine)),
            model_path=environ.get(names.ENV_MODEL_PATH, cls.model_path),
            revision=environ.get(names.ENV_REVISION, cls.revision),
            adapters=tuple(one["name"] for one in json.loads(environ.get(names.ENV_ADAPTERS, "[]"))),
            head=Head.from_json(environ.get(names.ENV_HEAD)),
            max_body_bytes=_number(environ, names.ENV_MAX_BODY_BYTES, int, cls.max_body_bytes),
            probe_seconds=_number(environ, "REWARDPOOL_PROBE_SECONDS", float, cls.probe_seconds),
            dtype=environ.get(names.ENV_DTYPE, cls.dtype),
            certificate_seconds=_number(environ, names.ENV_CERTIFICATE_SECONDS, float, cls.certificate_seconds),
            sleep_max_abs_diff=_number(environ, names.ENV_SLEEP_MAX_ABS_DIFF, float, cls.sleep_max_abs_diff),
        )


def _number(environ: MutableMapping[str, str], name: str, kind: Callable[[str], Any], default: Any) -> Any:
    try:
        return kind(environ[name]) if name in environ else default
    except ValueError:
        raise ValueError(f"{name} must be a number, not {environ[name]!r}") from None

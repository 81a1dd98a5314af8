"""Environment variables of the engine, written as a container's in a Pod."""

import re
from typing import Annotated, ClassVar

from pydantic import Field

from rewardpool_api.quantities import EntryName, ObjectName
from rewardpool_api.rules import ApiModel, Rule

OWN_VARIABLE = (
    "^(VLLM_API_KEY|VLLM_SERVER_DEV_MODE|SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
    "|REWARDPOOL_(ENGINE|MODEL_TYPE|MODEL_PATH|SERVED_NAME|HEAD|ADAPTERS|KEY_FILE|REVISION|DTYPE|SLEEP_MAX_ABS_DIFF))$"
)
"""By which RewardPool configures its workers."""
HUB_FOLDERS = ("HF_HOME", "HF_HUB_CACHE")
"""Where downloads go: in a cluster a volume is mounted there."""
_FOLDER = "^/[^$]*$"


class SecretKeyRef(ApiModel):
    """One entry of a Secret, as in a Pod."""

    name: ObjectName
    """Name of a Secret in the pool's namespace."""
    key: EntryName
    """Entry of the Secret whose value the variable gets."""
    optional: bool = False
    """Whether a replica starts without the variable if the Secret or the entry is missing."""


class ConfigMapKeyRef(ApiModel):
    """One entry of a ConfigMap, as in a Pod."""

    name: ObjectName
    """Name of a ConfigMap in the pool's namespace."""
    key: EntryName
    """Entry of the ConfigMap whose value the variable gets."""
    optional: bool = False
    """Whether a replica starts without the variable if the ConfigMap or the entry is missing."""


class FieldRef(ApiModel):
    """One field of the replica's own pod, as in a Pod."""

    field_path: Annotated[str, Field(min_length=1, max_length=512)]
    """Path of the pod's field, such as metadata.name, spec.nodeName or status.podIP."""
    api_version: Annotated[str, Field(max_length=63)] = "v1"
    """Version of the Pod schema that the path refers to."""


class EnvVarSource(ApiModel):
    """Where a variable's value comes from, in a cluster."""

    secret_key_ref: SecretKeyRef | None = None
    """Entry of a Secret that is the variable's value."""
    config_map_key_ref: ConfigMapKeyRef | None = None
    """Entry of a ConfigMap that is the variable's value."""
    field_ref: FieldRef | None = None
    """Field of the replica's pod that is the variable's value."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(one, one).size() == 1",
            message="spec.engine.env[].valueFrom must have one of secretKeyRef, configMapKeyRef and fieldRef",
            holds=lambda source: (
                sum(one is not None for one in (source.secret_key_ref, source.config_map_key_ref, source.field_ref))
                == 1
            ),
        ),
    )


class EnvVar(ApiModel):
    """One environment variable, as in a Pod."""

    name: Annotated[str, Field(max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
    """Name of the environment variable; must be unique in the list."""
    value: Annotated[str, Field(max_length=4096)] | None = None
    """Value of the variable; for secrets use `valueFrom`. In a cluster, `$(NAME)` expands to a variable above it in the list."""
    value_from: EnvVarSource | None = None
    """Source of the value, instead of `value`. In a cluster only: one machine has neither Secrets nor pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.value) || !has(self.valueFrom)",
            message="spec.engine.env[].value must not be set beside spec.engine.env[].valueFrom",
            holds=lambda variable: variable.value is None or variable.value_from is None,
        ),
        Rule(
            cel="self.name != 'PYTHONPATH' || !has(self.valueFrom)",
            message="spec.engine.env[].valueFrom must not be set for PYTHONPATH, which RewardPool puts its own folder in front of: set value",
            holds=lambda variable: variable.name != "PYTHONPATH" or variable.value_from is None,
        ),
        Rule(
            cel=f"!self.name.matches('{OWN_VARIABLE}')",
            message="spec.engine.env[].name must not be a variable by which RewardPool configures its workers: VLLM_API_KEY, VLLM_SERVER_DEV_MODE, SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION, or REWARDPOOL_ENGINE, _MODEL_TYPE, _MODEL_PATH, _SERVED_NAME, _HEAD, _ADAPTERS, _KEY_FILE, _REVISION, _DTYPE or _SLEEP_MAX_ABS_DIFF",
            holds=lambda variable: not re.match(OWN_VARIABLE, variable.name),
        ),
        Rule(
            cel=f"!(self.name in {list(HUB_FOLDERS)}) || (has(self.value) && self.value.matches('{_FOLDER}'))",
            message="spec.engine.env[].value must be an absolute path for HF_HOME and HF_HUB_CACHE, where models are downloaded to",
            holds=lambda variable: (
                variable.name not in HUB_FOLDERS or re.fullmatch(_FOLDER, variable.value or "") is not None
            ),
        ),
    )

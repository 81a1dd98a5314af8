"""Reading a manifest file on one machine, with the words an API server would use.

`kubectl apply` and `rewardpool up` take the same file. Where the API server's schema validation would complain, so does
this module, in the same phrases: a reader who searches for one message finds the other.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rewardpool_api import names
from rewardpool_api.pool import RewardPool

MAX_MANIFEST_BYTES = 1_500_000
"""An API server takes no larger object either."""


class ManifestError(ValueError):
    """A manifest that no API server would take.

    Attributes:
        problems: one line each, beginning with the field's path where there is one.
    """

    def __init__(self, origin: str, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join([f"{origin} is not a valid {names.KIND}:", *(f"  {line}" for line in problems)]))


def load_manifest(source: Path | str, *, origin: str | None = None) -> RewardPool:
    """Read the one RewardPool of a manifest.

    Args:
        source: a file's path, or the YAML text itself.
        origin: what to call the text in errors; by default the path.

    Raises:
        ManifestError: not YAML, not exactly one RewardPool, or fields that an API server would refuse.
        OSError: the file cannot be read.
    """
    text = source.read_text() if isinstance(source, Path) else source
    origin = origin or (str(source) if isinstance(source, Path) else "the manifest")
    if len(text.encode()) > MAX_MANIFEST_BYTES:
        raise ManifestError(origin, [f"it has more than {MAX_MANIFEST_BYTES} bytes"])
    document = _only_document(text, origin)
    try:
        # JSON mode and strict: "2" is no integer here, as it is none for an API server.
        return RewardPool.model_validate_json(json.dumps(document, default=str), strict=True)
    except ValidationError as error:
        problems = [_in_kubernetes_words(detail) for detail in error.errors(include_url=False)]
        raise ManifestError(origin, problems) from None


def dump_manifest(pool: RewardPool) -> dict[str, Any]:
    """The object as Kubernetes would show it: camelCase, without fields that are absent."""
    return pool.model_dump(mode="json", by_alias=True, exclude_none=True)


def _only_document(text: str, origin: str) -> dict[str, Any]:
    try:
        # BaseLoader's cousin: timestamps stay text, as for kubectl.
        documents = [part for part in yaml.load_all(text, Loader=_JsonLikeLoader) if part is not None]
    except yaml.YAMLError as error:
        raise ManifestError(origin, [f"it is not YAML: {error}"]) from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise ManifestError(origin, [f"it holds {len(documents)} documents; one {names.KIND} is expected"])
    document: dict[str, Any] = documents[0]
    kind, version = document.get("kind"), document.get("apiVersion")
    if (kind, version) != (names.KIND, names.API_VERSION):
        raise ManifestError(origin, [f'no matches for kind "{kind}" in version "{version}"'])
    return document


class _JsonLikeLoader(yaml.SafeLoader):
    """SafeLoader without YAML 1.1's timestamps."""


_JsonLikeLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def _path(detail: ErrorDetails) -> str:
    path = ""
    for part in detail["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".")


def _of_type(expected: str) -> Callable[[str, ErrorDetails], str]:
    def words(path: str, detail: ErrorDetails) -> str:
        found = _JSON_TYPES.get(type(detail["input"]), "null")
        return f'{path}: Invalid value: "{found}": {path} in body must be of type {expected}: "{found}"'

    return words


def _bound(comparison: str, key: str) -> Callable[[str, ErrorDetails], str]:
    def words(path: str, detail: ErrorDetails) -> str:
        limit = detail["ctx"][key]
        return f"{path}: Invalid value: {detail['input']}: {path} in body should be {comparison} {limit}"

    return words


def _enum(path: str, detail: ErrorDetails) -> str:
    # pydantic writes 'a', 'b' or 'c'; Kubernetes writes "a", "b", "c".
    supported = detail["ctx"]["expected"].replace(" or ", ", ").replace("'", '"')
    return f'{path}: Unsupported value: "{detail["input"]}": supported values: {supported}'


EXAMPLES: Mapping[str, str] = {
    "metadata": "{name: helpfulness}",
    "metadata.name": "helpfulness",
    "spec": "{model: {source: hf://ORG/NAME}}",
    "spec.model": "{source: hf://ORG/NAME}",
    "spec.model.source": "hf://ORG/NAME for a model, or python://MODULE:FUNCTION for a Python function",
    "spec.model.head.type": "LMHead",
    "spec.model.adapters[].name": "safety",
    "spec.model.adapters[].source": "pvc://CLAIM/PATH",
    "spec.model.tokenSecretRef.name": "hub-token",
    "spec.model.credentialsSecretRef.name": "s3-credentials",
    "spec.model.cache.claimName": "models",
    "spec.engine.env[].name": "HF_ENDPOINT",
    "spec.engine.env[].valueFrom.secretKeyRef.name": "proxy",
    "spec.engine.env[].valueFrom.secretKeyRef.key": "url",
    "spec.engine.env[].valueFrom.configMapKeyRef.name": "proxy",
    "spec.engine.env[].valueFrom.configMapKeyRef.key": "url",
    "spec.engine.env[].valueFrom.fieldRef.fieldPath": "metadata.name",
    "spec.router.tls.secretName": "router-certificate",
    "spec.autoscaling.maxReplicas": "8",
    "spec.autoscaling.policy.queueDepth.targetPerReplica": "32",
    "spec.autoscaling.policy.drainTime.targetSeconds": "10",
    "spec.autoscaling.policies[].queueDepth.targetPerReplica": "32",
    "spec.autoscaling.policies[].drainTime.targetSeconds": "10",
    "spec.autoscaling.budget.name": "gpus",
    "spec.autoscaling.budget.maxReplicas": "16",
    "spec.rollout.parity.goldenSetRef": "{name: golden-set}",
    "spec.rollout.parity.maxAbsDiff": "0.05",
    "spec.rollout.parity.goldenSetRef.name": "golden-set",
}
"""Required field -> a value it may have."""


def _missing(path: str, _: ErrorDetails) -> str:
    field = re.sub(r"\[\d+\]", "[]", path)
    return f"{path}: Required value" + (f": such as {EXAMPLES[field]}" if field in EXAMPLES else "")


_WORDS: dict[str, Callable[[str, ErrorDetails], str]] = {
    "extra_forbidden": lambda path, _: f'unknown field "{path}"',
    "missing": _missing,
    "literal_error": _enum,
    "rule": lambda _, detail: detail["msg"],
    "int_type": _of_type("integer"),
    "int_from_float": _of_type("integer"),
    "float_type": _of_type("number"),
    "string_type": _of_type("string"),
    "bool_type": _of_type("boolean"),
    "list_type": _of_type("array"),
    "dict_type": _of_type("object"),
    "model_type": _of_type("object"),
    "model_attributes_type": _of_type("object"),
    "greater_than_equal": _bound("greater than or equal to", "ge"),
    "less_than_equal": _bound("less than or equal to", "le"),
    "string_too_long": lambda path, detail: (
        f"{path}: Too long: may not be more than {detail['ctx']['max_length']} bytes"
    ),
    "string_too_short": lambda path, detail: (
        f'{path}: Invalid value: "{detail["input"]}": {path} in body should be at least '
        f"{detail['ctx']['min_length']} chars long"
    ),
    "string_pattern_mismatch": lambda path, detail: (
        f"{path}: Invalid value: {json.dumps(detail['input'], ensure_ascii=False)}: {path} in body should match "
        f"'{detail['ctx']['pattern']}'"
    ),
    "too_long": lambda path, detail: (
        f"{path}: Too many: {detail['ctx']['actual_length']}: must have at most {detail['ctx']['max_length']} items"
    ),
}
"""API-server phrase for each pydantic error; what is not here keeps pydantic's words behind the field's path."""


def _in_kubernetes_words(detail: ErrorDetails) -> str:
    path = _path(detail)
    words = _WORDS.get(detail["type"])
    return words(path, detail) if words is not None else f"{path}: {detail['msg']}"

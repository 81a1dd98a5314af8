"""Reading a manifest file on one machine, with the words an API server would use.

`kubectl apply` and `rewardpool up` take the same file. Where the API server's schema validation would complain, so does
this module, in the same phrases: a reader who searches for one message finds the other.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rewardpool_api import names
from rewardpool_api.documents import DocumentsError, read_documents
from rewardpool_api.pool import RewardPool

MAX_MANIFEST_BYTES = 1_500_000
"""An API server takes no larger object either."""


_EXPECTED: Final = f"a {names.KIND} begins with apiVersion: {names.API_VERSION} and kind: {names.KIND}"


class ManifestError(ValueError):
    """A manifest that no API server would take.

    Attributes:
        problems: one line each, beginning with the field's path where there is one.
    """

    def __init__(self, origin: str, problems: list[str]) -> None:
        self.problems = problems
        listed = f" {problems[0]}" if len(problems) == 1 else "".join(f"\n  {line}" for line in problems)
        super().__init__(f"{origin} is not a valid {names.KIND}:{listed}")


def load_manifest(source: Path | bytes | str, *, origin: str | None = None) -> RewardPool:
    """Read the one RewardPool of a manifest; documents of other kinds beside it are for kubectl.

    Args:
        source: a file's path, or the YAML itself.
        origin: what to call it in errors; by default the path.

    Raises:
        ManifestError: not YAML, not exactly one RewardPool, or fields that an API server would refuse.
        OSError: the file cannot be read.
    """
    origin = origin or (str(source) if isinstance(source, Path) else "the manifest")
    document = _reward_pool(_content(source, origin), origin)
    try:
        # JSON mode and strict: "2" is no integer here, as it is none for an API server.
        return RewardPool.model_validate_json(json.dumps(_without_nulls(document)), strict=True)
    except ValidationError as error:
        problems = [_in_kubernetes_words(detail) for detail in error.errors(include_url=False)]
        raise ManifestError(origin, problems) from None


def dump_manifest(pool: RewardPool) -> dict[str, Any]:
    """The object as Kubernetes would show it: camelCase, without fields that are absent."""
    return pool.model_dump(mode="json", by_alias=True, exclude_none=True)


def _content(source: Path | bytes | str, origin: str) -> bytes:
    if isinstance(source, Path):
        with source.open("rb") as file:
            source = file.read(MAX_MANIFEST_BYTES + 1)
    content = source.encode(errors="surrogatepass") if isinstance(source, str) else source
    if len(content) > MAX_MANIFEST_BYTES:
        raise ManifestError(origin, [f"it has more than {MAX_MANIFEST_BYTES} bytes"])
    return content


_KEEPS_NULLS: Final = tuple(("spec", part, "podTemplate") for part in ("worker", "router", "gateway"))


def _without_nulls(value: Any, path: tuple[str, ...] = ()) -> Any:
    """The object without the fields that are null, as an API server has it before it fills defaults in."""
    if isinstance(value, list):
        return [_without_nulls(one, path) for one in value]
    if not isinstance(value, dict) or path in _KEEPS_NULLS:
        return value
    if path in (("metadata", "labels"), ("metadata", "annotations")):
        return {name: "" if one is None else one for name, one in value.items()}
    return {name: _without_nulls(one, (*path, name)) for name, one in value.items() if one is not None}


def _reward_pool(content: bytes, origin: str) -> dict[str, Any]:
    """The one document that is a RewardPool."""
    try:
        documents = read_documents(content)
    except DocumentsError as error:
        raise ManifestError(origin, [str(error)]) from None
    if not documents:
        raise ManifestError(origin, [f"it is empty; {_EXPECTED}"])
    others = [each for each in documents if not isinstance(each, dict)]
    if others:
        found = _JSON_TYPES.get(type(others[0]), "null")
        raise ManifestError(origin, [f"it holds {_WITH_ARTICLE[found]} and not an object; {_EXPECTED}"])
    pools = [each for each in documents if _kind_of(each) == (names.KIND, names.API_VERSION)]
    if len(pools) > 1:
        raise ManifestError(origin, [f"it holds {len(pools)} of them; give each a file of its own"])
    if pools:
        document: dict[str, Any] = pools[0]
        return document
    if len(documents) > 1:
        kinds = ", ".join(str(_kind_of(each)[0]) for each in documents)
        raise ManifestError(origin, [f"it holds {len(documents)} documents and none is one ({kinds}); {_EXPECTED}"])
    kind, version = _kind_of(documents[0])
    for field, value, right in (("apiVersion", version, names.API_VERSION), ("kind", kind, names.KIND)):
        if value is None:
            raise ManifestError(origin, [f"{field}: Required value: it is {right}"])
    raise ManifestError(origin, [f'no matches for kind "{kind}" in version "{version}"; {_EXPECTED}'])


def _kind_of(document: dict[str, Any]) -> tuple[Any, Any]:
    return document.get("kind"), document.get("apiVersion")


_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_WITH_ARTICLE: Mapping[str, str] = {
    "string": "a string",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "array": "a list",
    "null": "something else",
}


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
    "int_or_string_type": _of_type("integer,string"),
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

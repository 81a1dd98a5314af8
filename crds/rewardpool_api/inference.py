"""Fields that a manifest may omit, since its source implies them: a function's type, engine and GPUs.

The API server cannot make one field's default of another field, so an object is stored without these fields, and every
reader of the object infers them anew. The CEL rules of `model.py` and `pool.py` infer the same.
"""

from typing import Any, Final

from pydantic import Field

from rewardpool_api.source import is_function

IS_INFERRED: Final = "x-rewardpool-inferred"
"""Marks such a field in pydantic's JSON schema; the CRD has no default for it."""
INFERRED: Final[Any] = Field(json_schema_extra={IS_INFERRED: True})
"""Goes into such a field's annotation."""

Spec = dict[str, Any]


def inferred(source: str) -> dict[tuple[str, str], Any]:
    """Part and field of the spec -> the value that a model of this source has where the manifest says nothing."""
    if is_function(source):
        return {("model", "type"): "Function", ("engine", "name"): "python", ("worker", "gpus"): 0}
    return {("model", "type"): "Discriminative", ("engine", "name"): "vllm", ("worker", "gpus"): 1}


def with_inferred(spec: Any) -> Any:
    """The spec of a manifest with what it leaves out; what is malformed is left for the models to refuse."""
    model = spec.get("model") if isinstance(spec, dict) else None
    source = model.get("source") if isinstance(model, dict) else None
    if not isinstance(source, str):
        return spec
    parts = {part: spec.get(part, {}) for part, _ in inferred(source)}
    return spec | {
        part: {field: value, **parts[part]}
        for (part, field), value in inferred(source).items()
        if isinstance(parts[part], dict)
    }


def without_inferred(spec: Spec) -> Spec:
    """The parts of a spec without what their source says anyhow, and without parts that are empty then."""
    values = inferred(spec["model"]["source"])
    left = {
        part: {field: value for field, value in fields.items() if values.get((part, field), ...) != value}
        for part, fields in spec.items()
    }
    return {part: fields for part, fields in left.items() if fields}

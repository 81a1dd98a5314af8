"""From the pydantic models to the CRD: a structural OpenAPI schema with defaults, enums and CEL rules.

pydantic's JSON schema is close to what Kubernetes takes, but not the same: references must be written out, `null`
unions become optional fields, and only a subset of keywords is allowed.
"""

import inspect
from typing import Any

from pydantic import BaseModel

from rewardpool_api import names
from rewardpool_api.inference import IS_INFERRED
from rewardpool_api.pool import RewardPool, RewardPoolSpec
from rewardpool_api.rules import ApiModel
from rewardpool_api.status import NEVER_OBSERVED, RewardPoolStatus

Schema = dict[str, Any]

_KEYWORDS = {
    "default",
    "description",
    "enum",
    "format",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
}
_MAX_MAP_PROPERTIES = 64

PRINTER_COLUMNS: tuple[Schema, ...] = (
    {"name": "Ready", "type": "string", "jsonPath": ".status.ready"},
    {"name": "Status", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].reason'},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    *(
        {**column, "priority": 1}
        for column in (
            {"name": "Serving", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Serving")].status'},
            {"name": "Degraded", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Degraded")].status'},
            {"name": "In-flight", "type": "integer", "jsonPath": ".status.load.inFlight"},
            {"name": "Waiting", "type": "integer", "jsonPath": ".status.load.waiting"},
            {"name": "Recommended", "type": "integer", "jsonPath": ".status.scaling.recommendedReplicas"},
            {"name": "Limit", "type": "string", "jsonPath": ".status.scaling.limit"},
            {"name": "Routers", "type": "integer", "jsonPath": ".status.routerReplicas"},
            {"name": "Revision", "type": "string", "jsonPath": ".status.currentRevision"},
            {"name": "Engine", "type": "string", "jsonPath": ".status.model.engine"},
            {"name": "Model", "type": "string", "jsonPath": ".spec.model.source"},
            {"name": "URL", "type": "string", "jsonPath": ".status.url"},
        )
    ),
)
"""As a Deployment's: the first three always, the others with `-o wide`."""


def custom_resource_definition() -> Schema:
    """The CustomResourceDefinition, ready for `kubectl apply --server-side`."""
    root_rules = [{"rule": rule.cel, "message": rule.message} for rule in RewardPool.rules]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": ["rp"],
                # As a Deployment: `kubectl get all` shows what serves, and a pool is what people declare of it.
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": list(PRINTER_COLUMNS),
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": inspect.getdoc(RewardPool),
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {
                                    "type": "string",
                                    "description": "Version of the schema that the object is written in.",
                                },
                                "kind": {"type": "string", "description": "Kind of the object, which is RewardPool."},
                                "metadata": {"type": "object"},
                                "spec": structural_schema(RewardPoolSpec),
                                # Without it kstatus takes a pool that no operator has seen for one without conditions,
                                # which it calls current.
                                "status": {
                                    **_without_defaults(structural_schema(RewardPoolStatus)),
                                    "default": {"observedGeneration": NEVER_OBSERVED},
                                },
                            },
                            "x-kubernetes-validations": root_rules,
                        }
                    },
                }
            ],
        },
    }


def structural_schema(model: type[ApiModel]) -> Schema:
    """The structural schema of one model, without references."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _structural(schema, schema.get("$defs", {}), _rules_by_title(model))


def _without_defaults(schema: Schema) -> Schema:
    """A status is written whole by the operator: the API server should add nothing to it."""
    parts = {key: value for key, value in schema.items() if key not in {"default", "properties", "items"}}
    if "properties" in schema:
        parts["properties"] = {name: _without_defaults(part) for name, part in schema["properties"].items()}
    if "items" in schema:
        parts["items"] = _without_defaults(schema["items"])
    return parts


def _rules_by_title(model: type[BaseModel]) -> dict[str, tuple[Any, ...]]:
    """The CEL rules of a model and of everything below it, by the schema title (the class name)."""
    found: dict[str, tuple[Any, ...]] = {}
    pending: list[type[BaseModel]] = [model]
    while pending:
        current = pending.pop()
        if current.__name__ in found:
            continue
        found[current.__name__] = getattr(current, "rules", ())
        pending.extend(part for field in current.model_fields.values() for part in _models_in(field.annotation))
    return found


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]


def _structural(schema: Schema, definitions: Schema, rules: dict[str, tuple[Any, ...]]) -> Schema:
    schema = _resolved(_without_null(_resolved(schema, definitions)), definitions)
    kept = {key: value for key, value in schema.items() if key in _KEYWORDS}
    if "const" in schema:
        kept["enum"] = [schema["const"]]
    if kept.get("default", ...) is None or IS_INFERRED in schema:
        kept.pop("default", None)
    elif "default" in kept and "properties" in schema:
        # The defaults of the fields inside fill it.
        kept["default"] = {}
    if schema.get("type") == "array":
        kept["items"] = _structural(schema["items"], definitions, rules)
    if "properties" in schema:
        kept["properties"] = {
            name: _structural(part, definitions, rules) for name, part in schema["properties"].items()
        }
        if schema.get("required"):
            kept["required"] = schema["required"]
    elif isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = _structural(schema["additionalProperties"], definitions, rules)
        kept["maxProperties"] = schema.get("maxProperties", _MAX_MAP_PROPERTIES)
    own_rules = rules.get(schema.get("title", ""), ())
    if own_rules and "properties" in schema:
        kept["x-kubernetes-validations"] = [{"rule": rule.cel, "message": rule.message} for rule in own_rules]
    return kept


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    """Write out a `$ref`; what stands beside it (a field's description or default) wins over the definition's."""
    if "$ref" not in schema:
        return schema
    target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _without_null(schema: Schema) -> Schema:
    """`X | None` is an optional field in Kubernetes, not a union."""
    options = schema.get("anyOf")
    if options is None:
        return schema
    (option,) = [option for option in options if option.get("type") != "null"]
    return {**option, **{key: value for key, value in schema.items() if key != "anyOf"}}

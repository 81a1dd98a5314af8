"""JSON schemas for kubeconform, made from what an API server says of itself.

kubeconform's own schemas are a download; the API server of the tests serves the same definitions (OpenAPI v2), those of
installed CRDs among them. A definition is strict here: fields it does not name are refused, as with `-strict`.
"""

import json
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

TEMPLATE = "{{.Group}}-{{.ResourceAPIVersion}}-{{.ResourceKind}}.json"
"""File name of a kind's schema, as kubeconform's -schema-location takes it."""


def write_schemas(openapi: Schema, folder: Path) -> int:
    """Write a schema for every kind; returns how many.

    Args:
        openapi: the document at /openapi/v2.
        folder: an empty folder.
    """
    definitions: dict[str, Schema] = openapi["definitions"]
    strict = {name: _strict(definition) for name, definition in definitions.items()}
    written = 0
    for name, definition in strict.items():
        for kind in definition.pop("x-kubernetes-group-version-kind", []):
            used = _used_by(name, strict)
            schema = {"$ref": f"#/definitions/{name}", "definitions": {each: strict[each] for each in used}}
            # For kubeconform the group of the core kinds is their version.
            file = f"{kind['group'] or kind['version']}-{kind['version']}-{kind['kind'].lower()}.json"
            (folder / file).write_text(json.dumps(schema))
            written += 1
    return written


def _strict(definition: Any) -> Any:
    if isinstance(definition, list):
        return [_strict(item) for item in definition]
    if not isinstance(definition, dict):
        return definition
    if definition.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    result = {name: _strict(value) for name, value in definition.items()}
    open_ended = definition.get("x-kubernetes-preserve-unknown-fields", False)
    if isinstance(definition.get("properties"), dict) and "additionalProperties" not in definition and not open_ended:
        result["additionalProperties"] = False
    return result


def _used_by(name: str, definitions: dict[str, Schema]) -> set[str]:
    used: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in used:
            used.add(each)
            waiting += _references(definitions[each])
    return used


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for item in schema for name in _references(item)]
    if not isinstance(schema, dict):
        return []
    reference = schema.get("$ref")
    found = [reference.removeprefix("#/definitions/")] if isinstance(reference, str) else []
    return found + [name for value in schema.values() for name in _references(value)]

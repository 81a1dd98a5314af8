"""The generated CRD."""

import re
from pathlib import Path

from rewardpool_api.crd import crd_yaml
from rewardpool_api.manifest import EXAMPLES
from rewardpool_api.schema import custom_resource_definition

CRD = Path(__file__).parents[2] / "crds" / "rewardpool.dev_rewardpools.yaml"
SCHEMA = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def parts(schema):
    yield schema
    for part in schema.get("properties", {}).values():
        yield from parts(part)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from parts(schema[key])


def test_the_yaml_in_the_repository_is_fresh():
    assert CRD.read_text() == crd_yaml(), "run `make crds`"


def test_it_is_under_200_kb():
    assert len(crd_yaml().encode()) < 200_000


def fields(schema, path):
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}", part
        yield from fields(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from fields(schema[key], f"{path}[]")


FIELDS = {
    path: field for part in ("spec", "status") for path, field in fields({"properties": {part: SCHEMA[part]}}, "")
}


def test_every_part_of_the_schema_has_a_type():
    assert all("type" in part or "x-kubernetes-int-or-string" in part for part in parts(SCHEMA["spec"]))


def test_every_field_has_a_description_that_is_a_sentence_and_no_repetition_of_its_name():
    def says_more(path, text):
        name = re.sub("([A-Z])", r" \1", path.rsplit(".", 1)[-1]).lower().split()
        words = re.findall(r"[a-z0-9]+", text.lower())
        return text.endswith(".") and len(words) >= 5 and len(set(words) - set(name) - {"the", "a", "of", "s"}) >= 3

    bad = {
        path: field.get("description")
        for path, field in FIELDS.items()
        if not says_more(path, field.get("description", ""))
    }
    assert bad == {}


def test_no_two_fields_of_one_object_have_the_same_description():
    for part in (*parts(SCHEMA["spec"]), *parts(SCHEMA["status"])):
        told = [field["description"] for field in part.get("properties", {}).values()]
        assert len(told) == len(set(told))


def test_rules_over_fields_are_in_the_schema_with_their_messages():
    rules = [rule for part in parts(SCHEMA["spec"]) for rule in part.get("x-kubernetes-validations", [])]
    assert "spec.autoscaling.minReplicas must not be greater than spec.autoscaling.maxReplicas" in {
        rule["message"] for rule in rules
    }


def required(schema, path="spec"):
    for name in schema.get("required", []):
        yield f"{path}.{name}"
    for name, part in schema.get("properties", {}).items():
        yield from required(part, f"{path}.{name}")
    if "items" in schema:
        yield from required(schema["items"], f"{path}[]")


def test_every_required_field_has_an_example():
    assert set(required(SCHEMA["spec"])) | {"metadata", "metadata.name", "spec"} == set(EXAMPLES)


def test_what_depends_on_the_source_has_no_default():
    spec = SCHEMA["spec"]["properties"]
    inferred = (
        spec["model"]["properties"]["type"],
        spec["engine"]["properties"]["name"],
        spec["worker"]["properties"]["gpus"],
    )
    assert not any("default" in field for field in inferred)

"""The generated CRD."""

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


def test_every_part_of_the_schema_has_a_type_and_every_spec_field_a_description():
    assert all("type" in part for part in parts(SCHEMA["spec"]))
    fields = [field for part in parts(SCHEMA["spec"]) for field in part.get("properties", {}).values()]
    assert all(field.get("description") for field in fields)


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

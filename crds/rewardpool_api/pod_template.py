"""`podTemplate`: whatever a pod may have, but for what RewardPool itself gives its containers.

An API server checks nothing in it: where no schema is, no rule reaches. So one machine refuses it as it reads the file,
and in a cluster the operator says it in the pool's Degraded, with reason `InvalidObject`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from rewardpool_api.environment import HUB_FOLDERS, OWN_VARIABLE
from rewardpool_api.rules import WITHOUT_RULES

_WORKERS: Final = re.compile("worker|download(-adapter-.*)?")
"""The containers that get `spec.engine.env`."""
_FOR_WORKERS: Final[Mapping[str, str]] = {
    "command": "RewardPool makes it: the engine's arguments are spec.engine.args, another program is spec.engine.image",
    "args": "the engine's arguments are spec.engine.args",
    "envFrom": "it could bring any variable: write those that are needed into spec.engine.env with valueFrom",
}
"""Field of such a container -> what to do without it."""
_ELSEWHERE: Final = ("PYTHONPATH", *HUB_FOLDERS)
"""Variables that `spec.engine.env` takes, since RewardPool has to know of them."""
_BEFORE_WORKERS: Final = re.compile("REWARDPOOL_.*")
"""Variables of routers and gateways."""


def _without_own(component: str) -> AfterValidator:
    def check(template: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if info.context != WITHOUT_RULES:
            for message in _overridden(template, component):
                raise PydanticCustomError("rule", "{message}", {"message": message})
        return template

    return AfterValidator(check)


def _overridden(template: Mapping[str, Any], component: str) -> Iterator[str]:
    """Say what of a template's containers is RewardPool's own."""
    spec = template.get("spec")
    for field in ("containers", "initContainers"):
        items = spec.get(field) if isinstance(spec, dict) else None
        for index, container in enumerate(items if isinstance(items, list) else ()):
            if isinstance(container, dict):
                place = f"spec.{component}.podTemplate.spec.{field}[{index}]"
                yield from _in_container(container, component, place)


def _in_container(container: Mapping[str, Any], component: str, place: str) -> Iterator[str]:
    name = container.get("name")
    if not isinstance(name, str):
        return
    of_engine = component == "worker" and _WORKERS.fullmatch(name) is not None
    if not of_engine and name != component:
        return
    for field, instead in _FOR_WORKERS.items():
        if of_engine and container.get(field) is not None:
            yield f"{place}.{field} must not be set in the container {name}: {instead}"
    variables = container.get("env")
    if isinstance(variables, dict) and "$patch" in variables:
        yield f"{place}.env must be a list of variables: the container {name} needs RewardPool's own"
    for index, variable in enumerate(variables if isinstance(variables, list) else ()):
        given = variable.get("name") if isinstance(variable, dict) else None
        if not isinstance(given, str):
            continue
        said = f"{place}.env[{index}].name must not be {given}"
        if re.match(OWN_VARIABLE, given) or (not of_engine and _BEFORE_WORKERS.fullmatch(given)):
            yield f"{said}, by which RewardPool configures its pods: the pool's key is that of spec.router.auth"
        elif of_engine and given in _ELSEWHERE:
            yield f"{said}, which spec.engine.env takes"


_ANYTHING: Final = Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
WorkerTemplate = Annotated[dict[str, Any], _without_own("worker"), _ANYTHING]
RouterTemplate = Annotated[dict[str, Any], _without_own("router"), _ANYTHING]
GatewayTemplate = Annotated[dict[str, Any], _without_own("gateway"), _ANYTHING]

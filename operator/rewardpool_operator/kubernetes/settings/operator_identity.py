"""Namespace and labels of the operator's own pod, from its environment: network policies have to admit it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from rewardpool_api import names

_LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9._-]{1,63}=[A-Za-z0-9._-]{0,63}")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class OperatorIdentity:
    """The operator's pods, and who reads metrics."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the operator's pods; none of them stands for every pod of the namespace."""
    ipv6: bool = False
    monitoring: tuple[str, ...] = ()
    """Namespaces whose pods may read metrics; none of them stands for every pod of the cluster."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self | None:
        """Return the identity of this operator; None for one outside of the cluster, which a policy would lock out.

        Raises:
            ValueError: a variable is not what it should be; the text names it.
        """
        namespace = environ.get(names.ENV_POD_NAMESPACE)
        if not namespace:
            return None
        return cls(
            namespace=namespace,
            labels=dict(pair.split("=", 1) for pair in _parts(environ, names.ENV_OPERATOR_SELECTOR, _LABEL)),
            ipv6=":" in environ.get("KUBERNETES_SERVICE_HOST", ""),
            monitoring=tuple(_parts(environ, names.ENV_MONITORING_NAMESPACES, _NAMESPACE)),
        )


def _parts(environ: Mapping[str, str], variable: str, form: re.Pattern[str]) -> list[str]:
    parts = [part.strip() for part in environ.get(variable, "").split(",") if part.strip()]
    wrong = [part for part in parts if form.fullmatch(part) is None]
    if wrong:
        what = "LABEL=VALUE" if form is _LABEL else "a namespace"
        raise ValueError(f"{variable}: each part must be {what}, not {wrong[0]!r}")
    return parts

"""`python -m rewardpool_api.crd [--check] FILE`: write the CRD's YAML, or fail when FILE is stale."""

import sys

import yaml

from rewardpool_api.generated import write_or_check
from rewardpool_api.schema import custom_resource_definition

HEADER = "# Generated from rewardpool_api by `make crds`; edit the models, not this file.\n"


def crd_yaml() -> str:
    """The CRD as YAML text, byte for byte what is kept in the repository."""
    return HEADER + yaml.safe_dump(custom_resource_definition(), sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    sys.exit(write_or_check(crd_yaml(), description=__doc__, target="crds"))

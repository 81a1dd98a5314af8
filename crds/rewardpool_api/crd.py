"""`python -m rewardpool_api.crd [--check] FILE`: write the CRD's YAML, or fail when FILE is stale."""

import argparse
import sys
from pathlib import Path

import yaml

from rewardpool_api.schema import custom_resource_definition

HEADER = "# Generated from rewardpool_api by `make crds`; edit the models, not this file.\n"


def crd_yaml() -> str:
    """The CRD as YAML text, byte for byte what is kept in the repository."""
    return HEADER + yaml.safe_dump(custom_resource_definition(), sort_keys=False, width=120, allow_unicode=True)


def main() -> int:
    """Entry point; the exit status is 1 when `--check` finds the file stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true", help="do not write; fail when the file is stale")
    arguments = parser.parse_args()
    if arguments.check:
        fresh = arguments.file.exists() and arguments.file.read_text() == crd_yaml()
        if not fresh:
            sys.stderr.write(f"{arguments.file} is stale: run `make crds`\n")
        return 0 if fresh else 1
    arguments.file.write_text(crd_yaml())
    return 0


if __name__ == "__main__":
    sys.exit(main())

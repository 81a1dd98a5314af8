"""Environment variables as a manifest has them."""

from collections.abc import Mapping


def env_vars(values: Mapping[str, str]) -> list[dict[str, str]]:
    """A list of name and value, as in a Pod."""
    return [{"name": name, "value": value} for name, value in values.items()]

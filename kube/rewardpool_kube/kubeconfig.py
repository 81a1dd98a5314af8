"""The credentials of a kubeconfig as kubectl reads them, where the client library reads them otherwise."""

import os
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

DEFAULT: Final = "~/.kube/config"


async def load_kubeconfig(configuration: Any, *, files: str | None, context: str | None = None) -> None:
    """Set host and credentials by a kubeconfig.

    - The command of a plugin (`exec`) with a slash in it is relative to the file that names it.
    - A token in a file ends before that file's last newline.

    Args:
        configuration: a `kubernetes_asyncio.client.Configuration`, which is changed.
        files: as in $KUBECONFIG, several where they are separated as there; None for `~/.kube/config`.
        context: the present one of the files where None.

    Raises:
        kubernetes_asyncio.config.ConfigException: it cannot be used.
        OSError: a file cannot be read.
    """
    # Heavy, and not needed by a trainer on one machine.
    import yaml
    from kubernetes_asyncio.config import ConfigException

    try:
        await _load(configuration, files=files, context=context)
    except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        # Of a file that is not YAML, empty, a list or a text the library says nothing.
        problem = f"{files or DEFAULT} is not a kubeconfig: not YAML, or not an object"
        raise ConfigException(problem) from error


async def _load(configuration: Any, *, files: str | None, context: str | None) -> None:
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    merged = KubeConfigMerger(files or DEFAULT)
    for user in merged.config.value["users"] if merged.config is not None else ():
        user.value = _with_absolute_command(user.value, Path(user.path))
    loader = KubeConfigLoader(
        merged.config, active_context=context, config_base_path=None, config_persister=merged.save_changes
    )
    await loader.load_and_set(configuration)
    token = configuration.api_key.get("BearerToken")
    if token is not None:
        configuration.api_key["BearerToken"] = token.strip()


def _with_absolute_command(user: Any, file: Path) -> Any:
    """Return the user with the path of its plugin, where that is relative to the file; another one as it is."""
    plugin = (user.get("user") or {}).get("exec") or {}
    command = plugin.get("command")
    if not isinstance(command, str) or os.sep not in command or os.path.isabs(command):
        return user
    changed = deepcopy(user)
    changed["user"]["exec"]["command"] = os.path.join(os.path.abspath(file.parent), command)
    return changed

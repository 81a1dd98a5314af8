"""Address of the API server, with credentials and proxy.

$KUBECONFIG where it is set, else the pod's ServiceAccount, else `~/.kube/config`. Kubeconfigs are read as kubectl reads
them, where the library reads them otherwise:

- The command of a plugin (`exec`) with a slash in it is relative to the file that names it.
- A token in a file ends before that file's last newline.

Quick to import: kubernetes_asyncio and yaml, which are not, are imported when credentials are read.
"""

import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from rewardpool_kube.errors import CredentialsError

Configuration = Any
"""A `kubernetes_asyncio.client.Configuration`: address and credentials."""

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, kw_only=True)
class Access:
    """An API server, and who asks it."""

    configuration: Configuration
    namespace: str
    context: str | None = None
    """Context of the kubeconfig; None in a pod."""


def is_in_pod(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the ServiceAccount of the pod that this runs in is used."""
    has_account = "KUBERNETES_SERVICE_HOST" in environ and (SERVICE_ACCOUNT / "token").exists()
    return has_account and not environ.get("KUBECONFIG")


def kubeconfigs(environ: Mapping[str, str] = os.environ) -> str:
    """Return the paths of the kubeconfigs, separated as in $KUBECONFIG, whether they exist or not."""
    return environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def is_configured(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether credentials of a cluster are at hand."""
    return is_in_pod(environ) or any(Path(part).exists() for part in kubeconfigs(environ).split(os.pathsep) if part)


async def load_access(environ: Mapping[str, str] = os.environ, *, context: str | None = None) -> Access:
    """Return the API server and the credentials; a context is one of the kubeconfig's, by default its present one.

    Raises:
        CredentialsError: there are none, or they cannot be used.
    """
    import yaml
    from kubernetes_asyncio import config

    if context is None and not is_configured(environ):
        # The library would say that a file that nobody named lacks a key.
        raise CredentialsError("none is configured; set $KUBECONFIG, or run in a pod with a ServiceAccount's token")
    try:
        return _of_pod() if context is None and is_in_pod(environ) else await _of_kubeconfig(environ, context)
    except config.ConfigException as error:
        raise CredentialsError(str(error)) from error
    except OSError as error:
        raise CredentialsError(f"{error.filename}: {error.strerror}") from error
    except (LookupError, AttributeError, TypeError, ValueError, yaml.YAMLError) as error:
        # Of a file that is not YAML, empty, a list or a text the library says nothing.
        problem = f"{kubeconfigs(environ)} is not a kubeconfig: not YAML, or not an object"
        raise CredentialsError(problem) from error


async def load_configuration(environ: Mapping[str, str] = os.environ) -> Configuration:
    """Return address and credentials alone; raises what `load_access` raises."""
    return (await load_access(environ)).configuration


def _of_pod() -> Access:
    from kubernetes_asyncio import client, config

    configuration = client.Configuration()
    config.load_incluster_config(client_configuration=configuration)
    return Access(configuration=configuration, namespace=(SERVICE_ACCOUNT / "namespace").read_text().strip())


async def _of_kubeconfig(environ: Mapping[str, str], context: str | None) -> Access:
    from kubernetes_asyncio import client
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    configuration = client.Configuration()
    # Named here: the library reads the variable once, when it is imported.
    merged = KubeConfigMerger(kubeconfigs(environ))
    if merged.config is None:
        raise ConfigException(f"there is no {kubeconfigs(environ)}")
    for user in merged.config.value["users"]:
        user.value = _with_absolute_command(user.value, Path(user.path))
    loader = KubeConfigLoader(
        merged.config, active_context=context, config_base_path=None, config_persister=merged.save_changes
    )
    await loader.load_and_set(configuration)
    token = configuration.api_key.get("BearerToken")
    if token is not None:
        configuration.api_key["BearerToken"] = token.strip()
    chosen = loader.current_context
    namespace = chosen["context"].get("namespace") or "default"
    return Access(configuration=configuration, namespace=namespace, context=chosen["name"])


def _with_absolute_command(user: Any, file: Path) -> Any:
    """Return the user with the path of its plugin, where that is relative to the file; another one as it is."""
    plugin = (user.get("user") or {}).get("exec") or {}
    command = plugin.get("command")
    if not isinstance(command, str) or os.sep not in command or os.path.isabs(command):
        return user
    changed = deepcopy(user)
    changed["user"]["exec"]["command"] = os.path.join(os.path.abspath(file.parent), command)
    return changed


def proxy_of_environment(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; None where it names none."""
    parts = urlsplit(url)
    if parts.hostname is None or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)

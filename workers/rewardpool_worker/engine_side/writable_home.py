"""A home that can be written, whoever the pod's user is.

Engines and what they import keep caches and settings below HOME, and ask for the name of their user. A pod may run as a
user that its image does not know (as OpenShift's do): then HOME is `/` or another's folder, and there is no name.
"""

import os
import pwd
import tempfile
from collections.abc import MutableMapping


def make_home_writable(environ: MutableMapping[str, str]) -> None:
    """Set HOME to a folder that this process may write to, and LOGNAME to its user, where they are not.

    Args:
        environ: this process's variables, which are changed.
    """
    home = environ.get("HOME", "")
    if not (home and os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK)):
        environ["HOME"] = tempfile.mkdtemp(prefix="home-")
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        environ.setdefault("LOGNAME", f"uid-{os.getuid()}")

"""Look for keys and tokens in files, by detect-secrets: `python find_secrets.py KNOWN FILE…` fails where there are.

It goes through each line with each plugin, a minute for this repository. So the plugins' patterns are searched for in
whole files first, and lines are read where one is found.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.pre_commit_hook import main as hook


def suspects(known: Path, paths: Iterable[str]) -> list[str]:
    """The files in which a pattern of a plugin that `known` lists is found."""
    listed = {one["name"] for one in json.loads(known.read_text())["plugins_used"]}
    plugins = [one for one in get_mapping_from_secret_type_to_class().values() if one.__name__ in listed]
    if len(plugins) != len(listed):
        raise SystemExit(f"{known} lists plugins that detect-secrets does not have")
    patterns = [pattern for plugin in plugins for pattern in plugin.denylist]
    texts = ((path, Path(path).read_text(errors="replace")) for path in paths if Path(path).is_file())
    return [path for path, text in texts if any(pattern.search(text) for pattern in patterns)]


def main(known: str, *paths: str) -> int:
    """Print what is found that `known` does not have. Nothing is asked of a server."""
    found = suspects(Path(known), paths)
    return hook(["--no-verify", "--baseline", known, *found]) if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

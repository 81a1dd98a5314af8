"""Pictures of the page in the browser, of pools as a script has them: `make pictures`.

A headless Chromium opens the page as a person does: by the link with the token.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from support.browser import browser, serving_scripted_pools

POOL = "rl/helpfulness"
PICTURES = {
    "page-light": {"width": 1440, "height": 1180},
    "page-dark": {"width": 1440, "height": 1180, "dark": True},
    "page-phone": {"width": 412, "height": 1400},
}
"""Name -> how it is taken, in CSS pixels."""


async def main(folder: Path) -> None:
    """Take all of them.

    Args:
        folder: gets them, as PNG; it exists.
    """
    with tempfile.TemporaryDirectory() as temporary:
        async with serving_scripted_pools(Path(temporary)) as link:
            for name, how in PICTURES.items():
                async with browser(Path(temporary) / name) as tab:
                    await tab.open(f"{link}&pool={POOL}", **how)
                    for drawn in ("#chart svg text", "#log-text"):
                        await tab.wait_for(drawn)
                    (folder / f"{name}.png").write_bytes(await tab.picture())
                sys.stdout.write(f"{folder / name}.png\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    given: Path = parser.parse_args().folder
    given.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(given))

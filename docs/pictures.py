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
    "page-light": {"width": 1440, "height": 1350},
    "page-dark": {"width": 1440, "height": 1350, "dark": True},
    "page-phone": {"width": 412, "height": 1400},
    "page-scores": {"width": 1440, "height": 880},
}
"""Name -> how it is taken, in CSS pixels; of a machine."""
OF_CLUSTER = {
    "page-cluster": {"width": 1440, "height": 1350},
}


async def main(folder: Path) -> None:
    """Take all of them.

    Args:
        folder: gets them, as PNG; it exists.
    """
    with tempfile.TemporaryDirectory() as temporary:
        for cluster, pictures in ((False, PICTURES), (True, OF_CLUSTER)):
            async with serving_scripted_pools(Path(temporary), cluster=cluster) as link:
                for name, how in pictures.items():
                    async with browser(Path(temporary) / name) as tab:
                        await tab.open(f"{link}&pool={POOL}", **how)
                        for drawn in ("#chart svg text", "#log-text"):
                            await tab.wait_for(drawn)
                        if name == "page-scores":
                            await tab.evaluate("document.getElementById('scores').scrollIntoView({block: 'center'})")
                        save(await tab.picture(), folder / f"{name}.png")
        async with (
            serving_scripted_pools(Path(temporary), cluster=True) as link,
            browser(Path(temporary) / "form") as tab,
        ):
            await tab.open(link.partition("#")[0], width=1440, height=420)
            await tab.wait_for("form.sign-in")
            save(await tab.picture(), folder / "page-sign-in.png")


def save(picture: bytes, file: Path) -> None:
    """Keep a picture, and say where."""
    file.write_bytes(picture)
    sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    given: Path = parser.parse_args().folder
    given.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(given))

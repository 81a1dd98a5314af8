"""`rewardpool page`: the pools of this machine in the browser."""

import asyncio
import errno
import logging
import os
from typing import Annotated

import typer

from rewardpool_cli import screens
from rewardpool_cli.errors import CommandError
from rewardpool_local.page import PORT, serve
from rewardpool_local.page_folder import PageFolder


def page(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of 127.0.0.1.")] = PORT,
) -> None:
    """Show the pools of this machine in the browser: sizes, load, jobs and logs, live; until interrupted.

    Example: rewardpool page --port 8686
    """
    folder = PageFolder(os.environ)
    address = folder.address()
    if address is not None:
        screens.out.print(f"the page is served already: {folder.link(address)}", soft_wrap=True, markup=False)
        return
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    try:
        asyncio.run(serve(os.environ, port=port, ready=_print_link))
    except OSError as error:
        # Not the error's own words, which asyncio wraps in others.
        why = os.strerror(error.errno or errno.EIO)
        raise CommandError(f"port {port} cannot be listened at: {why}; choose another by --port") from None


def _print_link(link: str) -> None:
    screens.out.print(f"open {link}", soft_wrap=True, markup=False)
    screens.err.print("Ctrl-C stops it; the pools run on", style="dim")

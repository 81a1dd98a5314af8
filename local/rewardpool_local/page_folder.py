"""The files of the page in the browser: what opens it, and where it is served.

$REWARDPOOL_STATE_DIR/.page/token    what opens the page, mode 0600; made anew whenever it is served
                            address  where it is served
                            lock     held while it is
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rewardpool_local.folder import AlreadyRunningError, write_private
from rewardpool_runtime.file_lock import try_lock
from rewardpool_runtime.own_paths import check_own
from rewardpool_runtime.state_files import LOCK_FILE, is_supervised, state_dir


class PageFolder:
    """The page's own files."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # No namespace begins with a dot.
        self.path = state_dir(environ) / ".page"
        self.token_file = self.path / "token"
        self._address = self.path / "address"

    def address(self) -> str | None:
        """Return the present address of the page, without its token; None when it is not served."""
        try:
            return self._address.read_text() if is_supervised(self.path) else None
        except FileNotFoundError:
            return None

    def link(self, address: str) -> str:
        """Return the link that opens the page: the token is behind a #, which browsers do not send."""
        return f"{address}/#token={self.token_file.read_text()}"

    @contextmanager
    def serving(self, address: str) -> Iterator[None]:
        """Be the one who serves the page, there.

        Raises:
            AlreadyRunningError: another process is.
            PathNotOwnError: another user may write the folder.
        """
        check_own(self.path)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.path / LOCK_FILE).open("ab") as lock:
            if not try_lock(lock.fileno()):
                raise AlreadyRunningError("the page is served already")
            write_private(self.token_file, secrets.token_urlsafe(32))
            write_private(self._address, address)
            yield

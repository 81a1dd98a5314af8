"""Failures of a download, with a word for conditions and a sentence for people."""

import errno


class DownloadError(RuntimeError):
    """The model cannot be had.

    Args:
        reason: one word, see `ConditionReason` of the API.
        message: a sentence that says what to do; nothing secret is in it.
        attempts: how often to try in all before that is the end of it.
        wait_seconds: how long the server asks to wait before the next attempt.
    """

    def __init__(self, reason: str, message: str, *, attempts: int = 1, wait_seconds: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.attempts = attempts
        self.wait_seconds = wait_seconds


PASSING_ATTEMPTS = 6


def disk_error(error: OSError) -> DownloadError | None:
    """The error of a full disk in our words; None for another one."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return DownloadError("DiskFull", f"the cache is full ({error.strerror}): give spec.model.cache a larger claim")

"""Errors of a call to an API server: it is refused (`KubeError`), or not answered (`KubeUnreachableError`)."""

from http import HTTPStatus


class CredentialsError(RuntimeError):
    """There are no credentials of a cluster, or they cannot be used."""


class KubeError(RuntimeError):
    """The API server refused a call.

    Attributes:
        status: HTTP status.
        reason: Kubernetes' one word for it, such as NotFound, Forbidden or Invalid.
        is_status: whether the answer was Kubernetes' own `Status` object.
        is_conflict: whether somebody else wrote or made the object meanwhile.
    """

    def __init__(self, call: str, *, status: int, reason: str, message: str, is_status: bool = True) -> None:
        self.status = status
        self.reason = reason
        self.is_status = is_status
        self.is_conflict = status == HTTPStatus.CONFLICT
        super().__init__(f"{call}: {message or reason or status}")

    @property
    def is_not_found(self) -> bool:
        """True if there is no such object. A 404 without that word is somebody else's: of a path that a proxy lacks."""
        return (self.status, self.reason) == (404, "NotFound")


class KubeUnreachableError(RuntimeError):
    """The API server does not answer, not in time, or something in its place does: a proxy, a load balancer."""


class WatchSilentError(KubeUnreachableError):
    """A watch that was answered said nothing for a long time."""

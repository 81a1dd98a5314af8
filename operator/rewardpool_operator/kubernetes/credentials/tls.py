"""The routers' certificate: what the Secret of `spec.router.tls` must be, and by which certificates trainers verify.

The routers read certificate and key from the mounted Secret when they start, so another certificate is other pods. The
operator needs the Secret too: to roll the routers, to verify them itself, and to publish in the status whom to trust.
While routers with the old certificate and with the new one serve side by side, both are trusted.
"""

import base64
import binascii
import re
import ssl
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from rewardpool_api import RewardPool, names
from rewardpool_kube.client import Kube
from rewardpool_kube.resources import SECRETS, Object
from rewardpool_operator.kubernetes.manifests.diff import short_hash
from rewardpool_operator.kubernetes.polls.reading import Polling, Reading
from rewardpool_operator.kubernetes.queue.requeue import SECRETS as PACE
from rewardpool_operator.routers.admin import Trust
from rewardpool_runtime.trust import verifying_context

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL)


class TlsError(ValueError):
    """The Secret is missing or not what a router needs; the text names it, and says what to do."""


@dataclass(frozen=True, kw_only=True)
class TlsCertificate:
    """The public part of the Secret."""

    served: str
    """PEM that routers present: the certificate, and those between it and its CA."""
    trusted: str
    """PEM that verifies it: the Secret's CA, or else the certificate itself."""

    @property
    def fingerprint(self) -> str:
        return short_hash([self.served])


def certificate_of(pool: RewardPool, secret: Object | None) -> TlsCertificate | None:
    """The certificate that the pool's routers shall serve; None for a pool that serves HTTP.

    Raises:
        TlsError: there is none, or it cannot be used.
    """
    if pool.spec.router.tls is None:
        return None
    where = f"spec.router.tls.secretName: the Secret {pool.spec.router.tls.secret_name}"
    if secret is None:
        raise TlsError(f"{where} does not exist; make it of type kubernetes.io/tls, with tls.crt and tls.key")
    served, key = _entry(secret, names.TLS_CERTIFICATE), _entry(secret, names.TLS_KEY)
    if not _PEM.search(served):
        raise TlsError(f"{where} has no certificate (PEM) as {names.TLS_CERTIFICATE}")
    if "PRIVATE KEY-----" not in key:
        raise TlsError(f"{where} has no private key (PEM) as {names.TLS_KEY}")
    trusted = _entry(secret, names.TLS_CA) or served
    try:
        verifying_context(trusted)
    except ValueError as error:
        entry = names.TLS_CA if trusted != served else names.TLS_CERTIFICATE
        raise TlsError(f"{where}: its {entry} cannot be read: {error}") from None
    # What is published must be certificates and nothing else.
    return TlsCertificate(served=served, trusted="\n".join(_PEM.findall(trusted)) + "\n")


def ca_bundle(certificate: TlsCertificate | None, *, before: str | None, served: set[str]) -> str | None:
    """Return PEM in base64 for the status' `auth.caBundle`, None without one; `served` are fingerprints."""
    if certificate is None:
        return before if served else None
    blocks = _PEM.findall(certificate.trusted)
    if served - {certificate.fingerprint}:
        blocks += [block for block in _PEM.findall(_decoded(before or "")) if block not in blocks]
    return base64.b64encode(("\n".join(blocks) + "\n").encode()).decode()


@lru_cache(maxsize=1024)
def trust(bundle: str | None, server_hostname: str) -> Trust:
    """Return how the operator verifies a router: by address, with a certificate for the pool's host."""
    try:
        context = verifying_context(_decoded(bundle or ""))
    except ValueError:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return Trust(context=context, server_hostname=server_hostname)


@dataclass(frozen=True, kw_only=True)
class Tls:
    """State of a pool's certificate; both fields are None for a pool that serves HTTP."""

    certificate: TlsCertificate | None = None
    problem: str | None = None


PLAIN: Final = Tls()


class CertificateReader:
    """Reads the Secret of one pool's certificate by name, as often as the pool's own Secrets."""

    def __init__(self, kube: Kube, polling: Polling) -> None:
        self._kube = kube
        self._polling = polling
        self._name: str | None = None
        self._reading: Reading[Object | None] = Reading(polling)
        self._read_at = float("-inf")
        self._tls: Tls | None = None

    @property
    def refused(self) -> str | None:
        """Reason why the Secret could not be read the last time; None when it could."""
        return self._reading.problem

    async def read(self, pool: RewardPool, *, now: float, pools: int, may_read: bool) -> Tls:
        """The certificate as of `now` (monotonic seconds); what was read last holds while the Secret cannot be read.

        It may not be read while the API server is away, another operator leads, or it failed a moment ago.
        """
        name = pool.spec.router.tls.secret_name if pool.spec.router.tls else None
        if name != self._name:
            self.close()
            self._reading, self._read_at = Reading(self._polling), float("-inf")
            self._name, self._tls = name, None
        if name is None:
            return PLAIN
        due = self.refused is not None or now - self._read_at >= PACE.seconds(pools)
        if may_read and (due or self._reading.pending):
            over = await self._reading.poll(partial(self._kube.get, SECRETS, pool.metadata.namespace, name))
            if over and self.refused is None:
                self._read_at, self._tls = now, _tls_of(pool, self._reading.last)
        if self._tls is not None:
            return self._tls
        why = self.refused or "the API server has not answered yet"
        return Tls(problem=f"spec.router.tls.secretName: the Secret {name} cannot be read: {why}")

    def close(self) -> None:
        self._reading.close()


def _tls_of(pool: RewardPool, secret: Object | None) -> Tls:
    try:
        return Tls(certificate=certificate_of(pool, secret))
    except TlsError as error:
        return Tls(problem=str(error))


def _entry(secret: Object, name: str) -> str:
    return _decoded((secret.get("data") or {}).get(name, ""))


def _decoded(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""

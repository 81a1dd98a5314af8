"""A certificate authority for one cluster, made with the openssl command.

Keys are elliptic (P-256): making one takes milliseconds, where RSA takes up to a second.
"""

from collections.abc import Sequence
from pathlib import Path

from cluster.processes import output_of

_DAYS = 30
"""Longer than any cluster of tests lives."""


def make_key(path: Path) -> Path:
    """A new private key, readable by its owner only."""
    path.touch(mode=0o600)
    # Not genpkey: the API server reads the public half only from an "EC PRIVATE KEY", not from PKCS #8.
    output_of("openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", path)
    return path


class Authority:
    """A certificate authority whose files (`ca.crt`, `ca.key`) lie in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate = directory / "ca.crt"
        self._key = make_key(directory / "ca.key")
        self._request(self._key, self.certificate, "/CN=rewardpool-test-ca", "-x509", "-days", str(_DAYS))

    def issue(
        self, name: str, *, common_name: str, organization: str | None = None, hosts: Sequence[str] = ()
    ) -> tuple[Path, Path]:
        """Write `name`.crt and `name`.key, valid for the server names or addresses `hosts` and as a client."""
        key = make_key(self.directory / f"{name}.key")
        certificate = self.directory / f"{name}.crt"
        request = self.directory / f"{name}.csr"
        extensions = self.directory / f"{name}.ext"
        subject = (f"/O={organization}" if organization else "") + f"/CN={common_name}"
        self._request(key, request, subject)
        extensions.write_text(extension_file(hosts))
        output_of(
            *("openssl", "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key),
            *("-CAcreateserial", "-days", str(_DAYS), "-extfile", extensions, "-out", certificate),
        )
        return certificate, key

    @staticmethod
    def _request(key: Path, out: Path, subject: str, *extra: str) -> None:
        output_of("openssl", "req", "-new", "-key", key, "-subj", subject, "-out", out, *extra)


def extension_file(hosts: Sequence[str]) -> str:
    """The text of an openssl extension file for a certificate that serves as `hosts` and as a client."""
    lines = ["extendedKeyUsage=serverAuth,clientAuth"]
    if hosts:
        names = (f"IP:{host}" if host.replace(".", "").isdigit() else f"DNS:{host}" for host in hosts)
        lines.append(f"subjectAltName={','.join(names)}")
    return "\n".join(lines) + "\n"

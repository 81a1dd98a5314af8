"""The Secret of a pool's certificate: what it must be, and what of it the status publishes."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from support.kube_builders import a_pool

from cluster.certificates import Authority
from rewardpool_kube.errors import KubeError, KubeUnreachableError
from rewardpool_operator.kubernetes.credentials.tls import PLAIN, CertificateReader, TlsError, ca_bundle, certificate_of
from rewardpool_operator.kubernetes.polls import reading
from rewardpool_operator.kubernetes.polls.reading import Polling

A_REFUSAL = KubeError("get", status=403, reason="Forbidden", message="not for you")
POOL = a_pool(router={"tls": {"secretName": "rm-tls"}})
POLLING = Polling(session=None)  # type: ignore[arg-type]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def a_secret(**entries: str) -> dict[str, Any]:
    return {"metadata": {"name": "rm-tls"}, "data": {name: encoded(text) for name, text in entries.items()}}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("authority")
    certificate, key = Authority(folder).issue("server", common_name="rm", hosts=["rm-router.rl.svc"])
    return {
        "tls.crt": certificate.read_text(),
        "tls.key": key.read_text(),
        "ca.crt": (folder / "ca.crt").read_text(),
    }


def test_a_pool_without_tls_needs_no_secret() -> None:
    assert certificate_of(a_pool(), None) is None


def test_trust_is_in_the_authority(files: dict[str, str]) -> None:
    certificate = certificate_of(POOL, a_secret(**files))
    assert certificate is not None
    assert (certificate.served, certificate.trusted.strip()) == (files["tls.crt"], files["ca.crt"].strip())


def test_trust_is_in_the_certificate_itself_where_no_authority_is_named(files: dict[str, str]) -> None:
    certificate = certificate_of(POOL, a_secret(**{**files, "ca.crt": ""}))
    assert certificate is not None
    assert certificate.trusted.strip() == files["tls.crt"].strip()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"tls.crt": ""}, "has no certificate (PEM) as tls.crt", id="no certificate"),
        pytest.param({"tls.crt": "hello"}, "has no certificate (PEM) as tls.crt", id="no PEM"),
        pytest.param({"tls.key": ""}, "has no private key (PEM) as tls.key", id="no key"),
        pytest.param({"ca.crt": "hello"}, "its ca.crt cannot be read", id="no authority"),
    ],
)
def test_what_cannot_be_used_is_named(files: dict[str, str], changes: dict[str, str], problem: str) -> None:
    with pytest.raises(TlsError, match=r"spec\.router\.tls\.secretName: the Secret rm-tls") as told:
        certificate_of(POOL, a_secret(**{**files, **changes}))
    assert problem in str(told.value)


def test_a_missing_secret_is_named_with_what_to_do() -> None:
    with pytest.raises(TlsError, match=r"does not exist; make it of type kubernetes\.io/tls"):
        certificate_of(POOL, None)


def test_nothing_but_certificates_is_published(files: dict[str, str]) -> None:
    certificate = certificate_of(POOL, a_secret(**{**files, "ca.crt": files["ca.crt"] + files["tls.key"]}))
    assert certificate is not None
    bundle = base64.b64decode(ca_bundle(certificate, before=None, served=set()) or "").decode()
    assert "PRIVATE" not in bundle
    assert bundle.strip() == files["ca.crt"].strip()


def test_the_old_certificates_are_trusted_until_no_router_serves_them(files: dict[str, str], tmp_path: Path) -> None:
    certificate = certificate_of(POOL, a_secret(**files))
    assert certificate is not None
    old = encoded(Authority(tmp_path).certificate.read_text())
    alone = ca_bundle(certificate, before=None, served=set())
    both = ca_bundle(certificate, before=old, served={"old", certificate.fingerprint})
    assert base64.b64decode(both or "").count(b"BEGIN CERTIFICATE") == 2
    assert ca_bundle(certificate, before=both, served={"old", certificate.fingerprint}) == both
    assert ca_bundle(certificate, before=both, served={certificate.fingerprint}) == alone


def test_a_pool_that_leaves_https_publishes_what_verifies_the_last_of_its_routers() -> None:
    assert ca_bundle(None, before="old", served={"old"}) == "old"
    assert ca_bundle(None, before="old", served=set()) is None


class FakeKube:
    """Has one Secret, and counts how often it is read."""

    def __init__(self, secret: dict[str, Any] | None) -> None:
        self.secret = secret
        self.reads = 0
        self.error: Exception | None = None
        self.hangs = False

    async def get(self, *_: object) -> dict[str, Any] | None:
        self.reads += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.secret


async def test_a_new_certificate_is_noticed_and_an_old_one_not_read_at_every_pass(files: dict[str, str]) -> None:
    kube = FakeKube(None)
    reader = CertificateReader(kube, POLLING)  # type: ignore[arg-type]
    first = await reader.read(POOL, now=0.0, pools=1, may_read=True)
    assert first is not None
    assert "does not exist" in (first.problem or "")
    kube.secret = a_secret(**files)
    assert await reader.read(POOL, now=1.0, pools=1, may_read=True) == first
    later = await reader.read(POOL, now=5.0, pools=1, may_read=True)
    assert later is not None
    assert later.certificate is not None
    assert kube.reads == 2


async def test_an_operator_that_may_not_read_goes_by_what_it_knows(files: dict[str, str]) -> None:
    kube = FakeKube(a_secret(**files))
    reader = CertificateReader(kube, POLLING)  # type: ignore[arg-type]
    unread = await reader.read(POOL, now=0.0, pools=1, may_read=False)
    assert "has not answered yet" in (unread.problem or "")
    known = await reader.read(POOL, now=1.0, pools=1, may_read=True)
    assert await reader.read(POOL, now=90.0, pools=1, may_read=False) is known
    assert await reader.read(a_pool(), now=91.0, pools=1, may_read=False) is PLAIN


@pytest.mark.parametrize("error", [KubeUnreachableError("no answer in time"), A_REFUSAL])
async def test_while_the_secret_cannot_be_read_what_was_known_holds(files: dict[str, str], error: Exception) -> None:
    kube = FakeKube(a_secret(**files))
    reader = CertificateReader(kube, POLLING)  # type: ignore[arg-type]
    known = await reader.read(POOL, now=0.0, pools=1, may_read=True)
    kube.error = error
    assert await reader.read(POOL, now=60.0, pools=1, may_read=True) is known
    assert reader.refused == str(error)


async def test_a_secret_that_cannot_be_read_at_all_is_a_problem_that_says_why(files: dict[str, str]) -> None:
    kube = FakeKube(a_secret(**files))
    kube.error = A_REFUSAL
    reader = CertificateReader(kube, POLLING)  # type: ignore[arg-type]
    tls = await reader.read(POOL, now=0.0, pools=1, may_read=True)
    assert "the Secret rm-tls cannot be read: get: not for you" in (tls.problem or "")


async def test_an_api_server_that_is_slow_holds_up_no_pass(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FIRST_PATIENCE_SECONDS", 0.01)
    kube = FakeKube(a_secret(**files))
    kube.hangs = True
    reader = CertificateReader(kube, POLLING)  # type: ignore[arg-type]
    assert (await reader.read(POOL, now=0.0, pools=1, may_read=True)).certificate is None
    reader.close()

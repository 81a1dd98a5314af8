"""Starting a router: its flags as a table, and what the launcher refuses."""

import os
import resource
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from support.fleet import FLAVORS, server_python
from support.ports import free_port
from support.processes import RealProcess

from cluster.certificates import Authority, make_key
from rewardpool_api.names import ENV_ROUTER_PACKAGE
from rewardpool_api.pool import RouterFlavor
from rewardpool_operator.routers.flags import TlsFiles, router_flags
from rewardpool_operator.routers.programs import PROGRAMS
from rewardpool_worker import router_launcher
from rewardpool_worker.diagnosis import diagnose


def flags(
    port: int = 8080,
    *,
    flavor: RouterFlavor = "sglang-router",
    tls: TlsFiles | None = None,
    host: str = "127.0.0.1",
    metrics_port: int = 9090,
) -> tuple[str, ...]:
    return router_flags(
        flavor=flavor,
        host=host,
        port=port,
        metrics_host=host,
        metrics_port=metrics_port,
        request_timeout_seconds=300,
        shutdown_grace_seconds=60,
        tls=tls,
    )


def launch(*argv: str, python: str = sys.executable, **env: str) -> tuple[int, str]:
    command = [python, router_launcher.__file__, *argv]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--port", "8080"),
        ("--request-timeout-secs", "300"),
        ("--shutdown-grace-period-secs", "60"),
        # Least in flight, the only policy that also counts.
        ("--policy", "cache_aware"),
        ("--balance-abs-threshold", "0"),
        ("--balance-rel-threshold", "1.0"),
        ("--retry-max-retries", "80"),
        ("--history-backend", "none"),
    ],
)
@pytest.mark.parametrize("flavor", FLAVORS)
def test_the_flags_that_survived_the_soak(flag: str, value: str, flavor: RouterFlavor) -> None:
    given = flags(flavor=flavor)
    assert given[given.index(flag) + 1] == value


@pytest.mark.parametrize(
    ("hard", "memory", "said"),
    [
        (20_000, None, "open files of this router: 20000, which is room for 9968 requests in flight\n"),
        (20_000, 4 << 30, "open files of this router: 8911, which is room for 4423 requests in flight\n"),
        (20_000, 1 << 20, "open files of this router: 1024, which is room for 480 requests in flight\n"),
        (32, 4 << 30, "open files of this router: 32, which is room for 0 requests in flight\n"),
        (
            resource.RLIM_INFINITY,
            4 << 30,
            "open files of this router: 8911, which is room for 4423 requests in flight\n",
        ),
        (resource.RLIM_INFINITY, None, ""),
    ],
)
def test_a_router_says_for_how_many_requests_its_open_files_are_room(
    hard: int, memory: int | None, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (16, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    router_launcher.limit_open_files(memory and str(memory))
    assert capsys.readouterr().err == said


def test_a_router_asks_its_workers_by_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    router_launcher.drop_proxies()
    assert not [name for name in os.environ if name.lower().endswith("_proxy")]


def test_smg_is_given_no_limit_of_its_own() -> None:
    given = flags(flavor="smg")
    assert given[given.index("--max-concurrent-requests") + 1] == "0"
    assert "--max-concurrent-requests" not in flags()


def test_a_certificate_makes_https() -> None:
    given = flags(tls=TlsFiles(certificate=Path("/tls/tls.crt"), key=Path("/tls/tls.key")))
    assert given[-4:] == ("--tls-cert-path", "/tls/tls.crt", "--tls-key-path", "/tls/tls.key")


@pytest.mark.parametrize(
    "argument",
    ["--api-key=x", "--api-key", "--api-k=x", "--a", "--control-plane-api-keys", "--tenant-api-key=a:b", "--tenant-a"],
)
def test_a_key_on_the_command_line_is_refused(argument: str) -> None:
    code, said = launch(argument)
    assert code == 2
    assert "put the key into a file" in said


@pytest.mark.parametrize("variable", ["REWARDPOOL_KEY_FILE", "REWARDPOOL_ADMIN_KEY_FILE"])
def test_an_empty_or_missing_key_file_starts_no_open_router(variable: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    code, said = launch(**{variable: str(tmp_path / "empty")})
    assert (code, f"{variable} {tmp_path / 'empty'} is empty" in said) == (2, True)
    assert launch(**{variable: str(tmp_path / "missing")})[0] == 2


def test_a_router_that_is_not_there_is_named() -> None:
    code, said = launch(**{ENV_ROUTER_PACKAGE: "smg"})  # in the environment of the tests there is none
    assert (code, diagnose(exit_code=code, log=said).reason) == (2, "BadArguments")
    assert "REWARDPOOL_ROUTER_PACKAGE smg cannot be started here" in said


@pytest.mark.real
@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_port_in_use_is_diagnosed(flavor: RouterFlavor) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = flags(taken.getsockname()[1], flavor=flavor)
        code, said = launch(*given, python=server_python(), **{ENV_ROUTER_PACKAGE: PROGRAMS[flavor].package})
    assert diagnose(exit_code=code, log=said).reason == "PortInUse"


@pytest.mark.real
@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_router_in_a_pod_with_ipv6_answers_by_both_families(flavor: RouterFlavor, tmp_path: Path) -> None:
    port, metrics_port = free_port(), free_port()
    given = flags(port, flavor=flavor, host="::", metrics_port=metrics_port)
    argv = [server_python(), router_launcher.__file__, *given]
    paths = (f"{port}/health", f"{metrics_port}/metrics")
    urls = [f"http://{host}:{path}" for host in ("[::1]", "127.0.0.1") for path in paths]

    def all_answer() -> bool:
        try:
            for url in urls:
                urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            return False
        return True

    with RealProcess(
        argv, log=tmp_path / "log", env={ENV_ROUTER_PACKAGE: PROGRAMS[flavor].package}, cwd=tmp_path
    ) as router:
        router.until(all_answer, seconds=30, what="it answers at all of its addresses")


@pytest.mark.real
@pytest.mark.parametrize("flavor", FLAVORS)
def test_the_router_refuses_a_flag_it_does_not_know(flavor: RouterFlavor) -> None:
    code, said = launch(
        "--no-such-flag", str(free_port()), python=server_python(), **{ENV_ROUTER_PACKAGE: PROGRAMS[flavor].package}
    )
    assert diagnose(exit_code=code, log=said).reason == "BadArguments"


@pytest.mark.real
@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_key_that_is_not_the_certificates_is_diagnosed(flavor: RouterFlavor, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.issue("server", common_name="rm", hosts=["rm-router.rl.svc"])
    given = flags(free_port(), flavor=flavor, tls=TlsFiles(certificate=certificate, key=make_key(tmp_path / "other")))
    code, said = launch(*given, python=server_python(), **{ENV_ROUTER_PACKAGE: PROGRAMS[flavor].package})
    diagnosis = diagnose(exit_code=code, log=said)
    assert (diagnosis.reason, "KeyMismatch" in diagnosis.message) == ("TlsUnusable", True)

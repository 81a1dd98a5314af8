"""What of the host's pip settings is lent to an image's build."""

import configparser

from cluster.images import lent_pip_settings


def lent(listing: str) -> dict[str, str]:
    config = configparser.RawConfigParser()
    config.read_string(lent_pip_settings(listing))
    return dict(config["global"])


def test_the_index_is_lent_and_paths_of_the_host_are_not() -> None:
    settings = lent("global.index-url='https://index.example/simple'\nglobal.find-links='/home/me/wheels'\n")

    assert settings["index-url"] == "https://index.example/simple"
    assert "find-links" not in settings


def test_the_environment_wins_over_the_file() -> None:
    assert lent(":env:.timeout='60'\n")["timeout"] == "60"
    assert lent("global.timeout='15'\n:env:.timeout='60'\n")["timeout"] == "60"
    assert lent(":env:.timeout='60'\nglobal.timeout='15'\n")["timeout"] == "60"


def test_settings_of_other_commands_are_not_lent() -> None:
    assert "proxy" not in lent("download.proxy='http://proxy.example'\n")


def test_the_certificates_are_where_the_build_sees_the_hosts() -> None:
    assert lent("global.cert='/opt/company.pem'\n")["cert"] == "/etc/ssl/certs/ca-certificates.crt"

"""What of the host's pip settings is lent to an image's build, and what makes another image of it."""

import configparser
from pathlib import Path

from cluster.images import digest_of, lent_pip_settings


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


def test_whatever_is_copied_into_an_image_makes_another_one(tmp_path: Path) -> None:
    container_file, code = tmp_path / "Containerfile", tmp_path / "code"
    container_file.write_text("ARG BASE\nFROM ${BASE}\nCOPY README.md LICENSE ./\nCOPY code code\n")
    code.mkdir()
    files = [tmp_path / "README.md", tmp_path / "LICENSE", code / "module.py", container_file]
    for file in files[:3]:
        file.write_text("as it was")
    seen = {digest_of(container_file, tmp_path), digest_of(container_file, tmp_path, further=["another base"])}
    for file in files:
        file.write_text(f"{file.read_text()}# edited\n")
        seen.add(digest_of(container_file, tmp_path))
    (tmp_path / "not-copied.py").write_text("of no image")
    (code / "__pycache__").mkdir()
    (code / "__pycache__" / "module.pyc").write_text("byte code")
    assert digest_of(container_file, tmp_path) in seen
    assert len(seen) == 2 + len(files)

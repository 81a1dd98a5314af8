"""The documentation's site: what `mkdocs build --strict` cannot say of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?([^"'\s>]+)|<link\b[^>]*\bhref=["']?([^"'\s>]+)"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = {"".join(found) for page in site.rglob("*.html") for found in FETCHED.findall(page.read_text())}
    assert any(source.endswith(".js") for source in fetched)
    assert {source for source in fetched if re.match(r"(\w+:)?//", source)} == set()


def test_the_readme_is_a_page_beside_the_index_and_leads_to_the_others(site: Path) -> None:
    assert "<title>README" not in (site / "index.html").read_text()
    assert 'href="training.html"' in (site / "readme.html").read_text()


def test_a_bar_within_code_in_a_table_has_no_backslash(site: Path) -> None:
    assert "drain_?time&#124;DrainTime" in (site / "architecture.html").read_text()

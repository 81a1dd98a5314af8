"""The versions that the page of verl's scripts names are those that verl's own extras pin."""

import re
from importlib.metadata import requires

from support.fleet import ROOT

PAGE = (ROOT / "examples" / "verl" / "README.md").read_text()
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| ([0-9.]+) \|", re.MULTILINE)
NEEDED = {"torch", "transformers", "vllm", "flash-attn", "cupy-cuda13x"}


def test_the_page_names_the_versions_that_verls_extras_pin() -> None:
    pinned = {requirement.split(";")[0].strip() for requirement in requires("verl") or ()}
    named = dict(ROW.findall(PAGE))
    assert set(named) == NEEDED
    assert {f"{name}=={version}" for name, version in named.items()} <= pinned


def test_the_page_installs_these_versions() -> None:
    named = dict(ROW.findall(PAGE))
    assert {f"torch=={named['torch']}", f"flash-attn=={named['flash-attn']}"} <= set(PAGE.split())

"""The look-up of known vulnerabilities: what was not looked up is said, and passes for nothing."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / ".ci" / "audit.py"
SAFE = {"name": "a", "version": "1", "vulns": []}
VULNERABLE = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"], "aliases": []}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (4)"}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["audit"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("dependencies", "required", "said", "code"),
    [
        ([SAFE], False, "audited: 1 packages, 0 known", 0),
        ([SAFE, VULNERABLE], False, "vulnerable: b==2: PYSEC-1, mended in 3", 1),
        ([SAFE, SKIPPED], False, "not audited: 1 packages; c: Dependency not found on PyPI", 0),
        ([SAFE, SKIPPED], True, "not audited: 1 packages", 1),
        ([], True, "", 1),
    ],
    ids=["safe", "vulnerable", "skipped", "skipped where it is required", "nothing looked up where it is required"],
)
def test_a_package_that_was_not_looked_up_is_said_and_fails_where_that_is_required(
    audit: ModuleType, dependencies: list[dict[str, Any]], required: bool, said: str, code: int
) -> None:
    lines, ended = audit.verdict(audit.read({"dependencies": dependencies}), required=required)
    assert said in "\n".join(lines)
    assert ended == code


def test_a_program_that_ends_without_an_answer_audited_nothing(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit.sys, "executable", "/bin/false")
    found = audit.look_up(["a==1"])
    assert (found.known, found.unknown) == ((), ("a==1: nothing",))


def test_every_pin_of_constraints_is_looked_up_and_no_list_has_two_versions_of_a_package(audit: ModuleType) -> None:
    texts = ["a==1\nb_x==2 ; python_version > '3'\n", "# c==9\na==3 \\\n    --hash=sha256:00\nb-x==2\nd>=4\n"]
    assert audit.pins(texts) == [["a==1", "b-x==2"], ["a==3", "b_x==2"]]

"""Look up what `constraints/` pins in PyPI's known vulnerabilities: `python audit.py CONSTRAINTS [--required]`.

pip-audit passes what its service does not know, so that where there is no service it finds nothing wrong with anything.
Here that is said in words, and is an error with `--required`; a vulnerability always is.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROBED = "pip"
"""Looked up first, in a release that is old enough to be known: where nothing is said of it, nothing is of others."""
PROBE = f"{PROBED}==23.0"
SECONDS = 1200
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True)
class Audit:
    """What was found out."""

    known: tuple[str, ...] = ()
    """Packages that were looked up."""
    vulnerable: tuple[str, ...] = ()
    """A line for each vulnerability."""
    unknown: tuple[str, ...] = ()
    """Packages of which the service says nothing, with why."""

    def __add__(self, other: "Audit") -> "Audit":
        return Audit(self.known + other.known, self.vulnerable + other.vulnerable, self.unknown + other.unknown)


def pins(texts: Iterable[str]) -> list[list[str]]:
    """All pins of the files, once each, as lists in which no package has two versions."""
    versions: dict[str, list[str]] = {}
    for name, version in sorted({found for text in texts for found in _PIN.findall(text)}):
        versions.setdefault(re.sub(r"[-_.]+", "-", name).lower(), []).append(f"{name}=={version}")
    longest = max(map(len, versions.values()), default=0)
    return [[found[turn] for found in versions.values() if turn < len(found)] for turn in range(longest)]


def read(answer: Mapping[str, Any]) -> Audit:
    """What pip-audit's JSON says."""
    known, vulnerable, unknown = [], [], []
    for one in answer["dependencies"]:
        if "skip_reason" in one:
            unknown.append(f"{one['name']}: {one['skip_reason']}")
            continue
        pin = f"{one['name']}=={one['version']}"
        known.append(pin)
        for found in one["vulns"]:
            mended = f"mended in {', '.join(found['fix_versions'])}" if found["fix_versions"] else "not mended yet"
            vulnerable.append(f"{pin}: {found['id']}, {mended}")
    return Audit(tuple(known), tuple(vulnerable), tuple(unknown))


def look_up(wanted: list[str]) -> Audit:
    """Ask pip-audit about these pins, and about nothing that they depend on."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(wanted))
        file.flush()
        options = ["--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json", "--requirement", file.name]
        command = [sys.executable, "-m", "pip_audit", *options]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    try:
        return read(json.loads(asked.stdout))
    except ValueError:
        said = asked.stderr.strip().splitlines() or ["nothing"]
        return Audit(unknown=tuple(f"{pin}: {said[-1]}" for pin in wanted))


def verdict(found: Audit, *, required: bool) -> tuple[list[str], int]:
    """What to print, and the exit code."""
    lines = [f"vulnerable: {one}" for one in found.vulnerable]
    if found.known:
        lines.append(f"audited: {len(found.known)} packages, {len(found.vulnerable)} known vulnerabilities")
    if found.unknown:
        lines.append(f"not audited: {len(found.unknown)} packages; {found.unknown[0]}")
    return lines, int(bool(found.vulnerable or (required and (found.unknown or not found.known))))


def main() -> int:
    """Print what was looked up and what was not."""
    parser = argparse.ArgumentParser(description="Look up what is pinned in PyPI's known vulnerabilities.")
    parser.add_argument("constraints", type=Path, help="folder of the files with pins")
    parser.add_argument("--required", action="store_true", help="fail where the service is not reached")
    wanted = parser.parse_args()
    turns = pins(path.read_text() for path in sorted(wanted.constraints.glob("*.txt")))
    probe = look_up([PROBE])
    if probe.known:
        found = sum(map(look_up, turns), Audit())
    else:
        why = f"the service says nothing, nor of {probe.unknown[0]}"
        found = Audit(unknown=tuple(f"{pin}: {why}" for turn in turns for pin in turn))
    lines, code = verdict(found, required=wanted.required)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())

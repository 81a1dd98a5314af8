"""How many inputs the tests of hostile input tried, told in the last lines of their run.

HOSTILE_EXAMPLES    inputs of each property; `make test-hostile HOSTILE_EXAMPLES=5000` is a long run
HOSTILE_SEED        which inputs; the same seed draws the same ones
"""

import os
from collections import Counter
from typing import Any, Final

EXAMPLES: Final = int(os.environ.get("HOSTILE_EXAMPLES") or 50)
SEED: Final = int(os.environ.get("HOSTILE_SEED") or 20)

TRIED: Final[Counter[str]] = Counter()
"""What was tried, in the plural -> how many of it."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TRIED:
        counts = ", ".join(f"{count:,} {what}" for what, count in TRIED.items())
        terminalreporter.write_line(f"hostile input (HOSTILE_SEED={SEED}, HOSTILE_EXAMPLES={EXAMPLES}): tried {counts}")

"""How much longer than an idle machine one may take that runs other suites at the same time.

Tests name the seconds after which something is wrong on an idle machine. What waits for them waits this many times as
long: a deadline is there to end a test that would hang, and nothing is measured by it.
"""

from typing import Final

PATIENCE: Final = 4

"""The checker of the tutorial: CPU time decides what a program is worth, and a busy machine does not."""

import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "code-checker.md"
WORKS = "import time\nwhile time.process_time() < 0.5: pass\ndef double(x): return 2 * x"
TESTS = {"tests": ["assert double(2) == 4"]}

Checker = Callable[[str], float]


@pytest.fixture
def checker() -> Checker:
    """The page's own code, whose programs get 1 s of CPU time instead of 5."""
    code = re.search(r"checker\.py <<'EOF'\n(.*?)\nEOF\n", PAGE.read_text(), re.DOTALL)
    assert code is not None
    module: dict[str, Any] = {}
    exec(code[1].replace("cpu_seconds=5", "cpu_seconds=1"), module)
    return lambda response: float(module["compute_score"]("test", response, None, TESTS))


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@contextmanager
def busy_cores() -> Iterator[None]:
    """Two processes for each core compute until the end of the block."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=burn, args=(60.0,)) for _ in range(2 * (os.cpu_count() or 1))]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def test_right_programs_are_right_when_six_run_at_once_on_busy_cores(checker: Checker) -> None:
    with busy_cores(), ThreadPoolExecutor(6) as threads:
        assert list(threads.map(checker, [WORKS] * 6)) == [1.0] * 6


@pytest.mark.parametrize(
    "program", ["while True: pass", "def double(x): return x", "def double(", "\0", "double = '\ud800'"]
)
def test_a_program_that_loops_or_is_wrong_has_the_score_0(checker: Checker, program: str) -> None:
    assert checker(program) == 0.0


@pytest.mark.parametrize("program", ["import time\ntime.sleep(30)", "import os\ndef double(x): os._exit(0)"])
def test_a_program_that_waits_or_leaves_has_the_score_0(checker: Checker, program: str) -> None:
    assert checker(program) == 0.0

"""verl's own client of SandboxFusion, answered by a pool through the gateway: `reward.sandbox_fusion.url`.

What it asks with, `call_sandbox_api`, and what it makes of the answers, `compute_score`, are verl's.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.local_machine import POOL, LocalMachine, finish, machine
from verl.utils.reward_score.sandbox_fusion import compute_score
from verl.utils.reward_score.sandbox_fusion.utils import call_sandbox_api

from rewardpool._gateway.run_code import FUNCTION

__all__ = ["machine"]

pytestmark = pytest.mark.real

TESTS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
CALLS = {"inputs": ["1\n2", "3\n4"], "outputs": ["3", "7"], "fn_name": "add"}
RIGHT = "a, b = map(int, input().split())\nprint(a + b)"
WRONG = {
    "wrong": "print(3.5)",
    "leaves": "import os\nos._exit(0)",
    "forks": "import os\nwhile True: os.fork()",
    "writes 100 MB": "print('3\\n' + 'x' * 100_000_000)",
    "kills": "import os\nos.kill(-1, 9)",
    "kills its parent": "import os\nos.kill(os.getppid(), 9)",
    "imitates an answer": 'print(\'{"status": "Success", "run_result": {"status": "Finished", "stdout": "3"}}\')',
    "answers in the sandbox's words": (
        "import os, struct\nframe = b'{\"value\": null}'\n"
        "for n in range(3, 60):\n try: os.write(n, struct.pack('!I', len(frame)) + frame)\n except OSError: pass"
    ),
    "endless": "while True: pass",
}


def block(code: str) -> str:
    return f"Here it is:\n```python\n{code}\n```"


def scored(url: str, code: str, tests: dict[str, Any], *, timeout: int = 1) -> tuple[float, list[dict[str, Any]]]:
    return compute_score(url, threading.Semaphore(4), 256, block(code), json.dumps(tests), timeout=timeout)


@contextmanager
def gateway(machine: LocalMachine) -> Iterator[str]:
    """`rewardpool gateway` before a pool that runs programs; gives the URL for verl."""
    model = {"source": FUNCTION, "type": "Function"}
    asyncio.run(machine.up(model=model, replicas=2))
    process = machine.start("gateway", POOL, "--listen", "127.0.0.1:0")
    assert process.stdout is not None
    found = re.search(r"answers at (http://\S+)/get_reward", line := process.stdout.readline())
    assert found is not None, line
    yield found.group(1) + "/run_code"
    process.terminate()
    assert asyncio.run(finish(process))[0] == 0
    assert asyncio.run(machine.run("down"))[0] == 0


def test_verl_scores_programs_and_none_is_forged(machine: LocalMachine) -> None:
    with gateway(machine) as url:
        assert scored(url, RIGHT, TESTS)[0] == 1.0
        assert scored(url, "def add(a, b): return a + b", CALLS)[0] == 1.0
        found = {name: scored(url, code, TESTS) for name, code in WRONG.items()}
        assert {name: score for name, (score, _) in found.items()} == dict.fromkeys(WRONG, 0.0)
        assert {one["status"] for one in found["endless"][1]} == {"timeout"}
        assert {one["status"] for one in found["writes 100 MB"][1]} == {"runtime_error"}
        assert scored(url, RIGHT, TESTS)[0] == 1.0

        # A worker that dies costs no program its answer.
        machine.worker().kill()
        assert scored(url, RIGHT, TESTS)[0] == 1.0

        answer, problem = call_sandbox_api(url, "int main() {}", "", 10, 10, 256, "cpp")
        assert answer is None
        assert "400" in str(problem)

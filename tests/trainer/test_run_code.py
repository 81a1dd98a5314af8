"""`/run_code` as SandboxFusion's clients know it, with the pool's function called in place."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rewardpool._gateway.run_code import RunCode
from rewardpool._gateway.server import GatewaySettings, gateway_app
from rewardpool._policy.text import PolicyText
from rewardpool._sample import Sample, Scored
from rewardpool.errors import DeadlineError, PoolNotReadyError, SampleTooLongError
from rewardpool.sandbox.run_code import compute_score

TROUBLE: dict[str, Exception] = {
    "slow": DeadlineError("s", 100.0, 6, "silence"),
    "gone": PoolNotReadyError("no worker"),
    "long": SampleTooLongError("s", 9000, 4096),
}


class ScriptedPool:
    """Stands in for a pool: code that names a trouble has it, `other` is scored by another function."""

    async def scored(self, sample: Sample) -> Scored:
        assert sample.function is not None
        code = sample.function.solution_str
        if code in TROUBLE:
            raise TROUBLE[code]
        if code == "never":
            await asyncio.Event().wait()
        info: Mapping[str, Any] = {}
        if code != "other":
            info = await compute_score(**vars(sample.function))
        return Scored(value=1.0, attempts=1, seconds=0.0, info={key: info[key] for key in info if key != "score"})


class ScriptedReward:
    """The reward of such a pool."""

    needs_group = False
    moments = None
    pools = {"rl/sandbox": ScriptedPool()}


@asynccontextmanager
async def answering(**settings: Any) -> AsyncIterator[TestClient[Any, Any]]:
    @asynccontextmanager
    async def opening() -> AsyncIterator[Any]:
        yield ScriptedReward()

    app = gateway_app(opening(), GatewaySettings(text=PolicyText(), **settings))
    async with TestClient(TestServer(app)) as client:
        yield client


async def asked(code: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"code": code, "language": "python", **fields}
    async with answering() as client, client.post("/run_code", json=body) as answer:
        return answer.status, await answer.json()


async def test_a_program_gets_its_input_and_its_output_is_answered() -> None:
    status, said = await asked("import sys; print(input()); print('a note', file=sys.stderr)", stdin="é")
    result = said.pop("run_result")
    assert (status, said) == (200, {"status": "Success", "message": "", "compile_result": None, "files": {}})
    assert 0 < result.pop("execution_time") < 10
    assert result == {"status": "Finished", "return_code": 0, "stdout": "é\n", "stderr": "a note\n"}


@pytest.mark.parametrize(
    ("code", "status", "return_code"),
    [
        ("exit(3)", "Finished", 3),
        ("exit('why')", "Finished", 1),
        ("exit(-1)", "Finished", 255),
        ("import os; os._exit(4)", "Finished", 4),
        ("1 / 0", "Finished", 1),
        ("def f(:", "Finished", 1),
        ("import os; os.abort()", "Finished", -6),
        ("while True: print('x' * 1000)", "Finished", -9),
        ("import os; os.fork()", "Finished", 1),
        ("x = bytearray(8 << 30)", "Finished", 1),
        ("while True: pass", "TimeLimitExceeded", None),
        ("import time; time.sleep(60)", "TimeLimitExceeded", None),
        ("import os\nos.closerange(0, 60)\nwhile True: pass", "Finished", -9),
    ],
)
async def test_a_program_that_fails_does_so_by_its_own_fault(code: str, status: str, return_code: int | None) -> None:
    answered, said = await asked(code, run_timeout=0.3)
    result = said["run_result"]
    assert (answered, said["status"], result["status"], result["return_code"]) == (200, "Failed", status, return_code)


async def test_an_exception_is_shown_as_python_shows_it() -> None:
    _, said = await asked("def f():\n    raise ValueError('no')\nf()")
    assert said["run_result"]["stderr"].splitlines() == [
        "Traceback (most recent call last):",
        '  File "<response>", line 3, in <module>',
        "    f()",
        '  File "<response>", line 2, in f',
        "    raise ValueError('no')",
        "ValueError: no",
    ]


async def test_files_are_read_and_imported() -> None:
    files = {"helper.py": b64encode(b"double = lambda x: 2 * x").decode(), "data.bin": "/w==", "left_out": None}
    code = "import helper, os; print(helper.double(open('data.bin', 'rb').read()), sorted(os.listdir('.')))"
    _, said = await asked(code, files=files)
    assert said["run_result"]["stdout"] == "b'\\xff\\xff' ['data.bin', 'helper.py']\n"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"language": "cpp"}, "language: Input should be 'python'"),
        ({"run_timeout": 0}, "run_timeout: "),
        ({"run_timeout": 1e9}, "run_timeout: "),
        ({"memory_limit_MB": 1 << 20}, "memory_limit_MB: "),
        ({"fetch_files": ["x"]}, "fetch_files: "),
        ({"files": {"../x": ""}}, "must be a name without a folder"),
        ({"files": {"x" * 256: ""}}, "must be a name without a folder"),
        ({"files": {"x": "no base64"}}, "files.x: "),
        ({"files": {f"f{n}": "" for n in range(65)}}, "files: "),
    ],
)
async def test_what_cannot_be_run_is_refused_by_its_field(fields: dict[str, Any], problem: str) -> None:
    status, said = await asked("pass", **fields)
    assert (status, said["status"], problem in said["message"]) == (400, "SandboxError", True), said


@pytest.mark.parametrize(("code", "status"), [("slow", 504), ("gone", 504), ("long", 422), ("other", 404)])
async def test_what_is_no_fault_of_the_program_is_answered_so_that_verl_tries_again(code: str, status: int) -> None:
    answered, said = await asked(code)
    assert (answered, said["status"], said["run_result"]) == (status, "SandboxError", None)


async def test_a_program_without_an_answer_is_given_up_before_its_caller_gives_up() -> None:
    program = RunCode(code="", language="python", run_timeout=5, compile_timeout=10)
    assert (program.answer_seconds(100), program.answer_seconds(20)) == (23, 20)
    assert RunCode(code="", language="python", run_timeout=5).answer_seconds(100) == 100
    body = {"code": "never", "language": "python"}
    async with answering(timeout=0.05) as client, client.post("/run_code", json=body) as answer:
        assert (answer.status, "no answer of the pool within 0.05 s" in await answer.text()) == (504, True)


async def test_without_the_key_nothing_is_run() -> None:
    async with answering(key="right") as client, client.post("/run_code", json={"code": ""}) as answer:
        assert (answer.status, (await answer.json())["status"]) == (401, "SandboxError")

"""`POST /run_code` in SandboxFusion's words, answered from a pool that runs programs; data in, data out.

{"code": ..., "language": "python", "stdin": ..., "run_timeout": 10, "memory_limit_MB": -1, "files": {NAME: BASE64}}
-> {"status": "Success", "message": "", "compile_result": null, "files": {}, "run_result": {"status": "Finished"}}

Read in SandboxFusion's source and in two of its clients, verl's `reward.sandbox_fusion` and Tinker's cookbook. verl
asks again after a 504 alone, and takes any other failure for a wrong program.
"""

import signal
from base64 import b64decode
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rewardpool._sample import FunctionSample, Sample
from rewardpool.sandbox.runner import is_file_name

PATH: Final = "/run_code"
FUNCTION: Final = "python://rewardpool.sandbox.run_code:compute_score"
DEFAULT_MEMORY_MIB: Final = 1024
MAX_MEMORY_MIB: Final = 16 * 1024
MAX_SECONDS: Final = 3600.0
MAX_FILES: Final = 64
# verl waits 10 s longer than both timeouts, and needs a 504 before that.
ANSWER_SECONDS: Final = 8.0


def _base64(text: str | None) -> str | None:
    if text is not None:
        b64decode(text, validate=True)  # ValueError says what is wrong
    return text


def _name(name: str) -> str:
    if not is_file_name(name):
        raise ValueError("must be a name without a folder")
    return name


def _nothing(value: list[str]) -> list[str]:
    if value:
        raise ValueError("must be empty: programs write no files here, and have no arguments")
    return value


Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
FileName = Annotated[str, AfterValidator(_name)]
Nothing = Annotated[list[str], AfterValidator(_nothing)]


class RunCode(BaseModel):
    """Request of SandboxFusion's clients.

    Attributes:
        run_timeout: Of processor time, and again of idle time.
        compile_timeout: Python needs none. Who gives one waits for both timeouts, and 10 s.
        memory_limit_MB: 1024 where it is not above 0.
        files: Contents in base64 by name; without one it is left out.
    """

    model_config = ConfigDict(frozen=True)

    code: str
    language: Literal["python"]
    stdin: str | None = None
    compile_timeout: Seconds | None = None
    run_timeout: Seconds = 10.0
    memory_limit_MB: Annotated[int, Field(le=MAX_MEMORY_MIB)] = -1  # noqa: N815  # the protocol's name
    files: Annotated[dict[FileName, Annotated[str | None, AfterValidator(_base64)]], Field(max_length=MAX_FILES)] = {}
    fetch_files: Nothing = []
    args: Nothing = []

    def sample(self) -> Sample:
        given = {
            "stdin": self.stdin or "",
            "files": {name: content for name, content in self.files.items() if content is not None},
            "cpu_seconds": self.run_timeout,
            "idle_seconds": self.run_timeout,
            "memory_mib": self.memory_limit_MB if self.memory_limit_MB > 0 else DEFAULT_MEMORY_MIB,
        }
        function = FunctionSample(data_source="run_code", solution_str=self.code, ground_truth=None, extra_info=given)
        return Sample(function=function, id="program")

    def answer_seconds(self, most: float) -> float:
        """Return how long the caller waits for an answer, and no longer than the gateway may."""
        if self.compile_timeout is None:
            return most
        return min(most, self.compile_timeout + self.run_timeout + ANSWER_SECONDS)


def run_code_answer(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer about a program that the pool's function ran."""
    code = verdict["exit_code"]
    timed_out = verdict["outcome"] in ("cpu_exceeded", "idle_exceeded")
    if code is None and not timed_out:
        code = -signal.SIGKILL  # it wrote too much, or crippled its process
    result = {
        "status": "TimeLimitExceeded" if timed_out else "Finished",
        "execution_time": verdict["cpu_seconds"],
        "return_code": code,
        "stdout": verdict["stdout"],
        "stderr": verdict["stderr"],
    }
    status = "Success" if code == 0 else "Failed"
    return {
        "status": status,
        "message": verdict["message"],
        "compile_result": None,
        "run_result": result,
        "files": {},
    }


def sandbox_error(problem: str) -> dict[str, Any]:
    """Return the answer about a program that could not be run, by no fault of its own."""
    return {"status": "SandboxError", "message": problem, "compile_result": None, "run_result": None, "files": {}}

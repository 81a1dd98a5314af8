"""What dead engines printed, and what is said about it: vLLM 0.32's own words, shortened, and SGLang 0.5.23's."""

import pytest

from rewardpool_worker.diagnosis import KEPT_CHARACTERS, KEPT_LINES, diagnose

MISSING_FOLDER = """\
  File "/venv/huggingface_hub/utils/_validators.py", line 133, in validate_repo_id
    raise HFValidationError(
huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': \
'/nonexistent/model'. Use `repo_type` argument if needed.
"""
EMPTY_FOLDER = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, Invalid repository ID or local directory specified: '/models/empty'.
Please verify the following requirements:
"""
OFFLINE_HUB = """\
huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified \
revision on the local disk and outgoing traffic has been disabled.
"""
UNREACHABLE_HUB = """\
    raise OSError(
OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.
Check your internet connection or see how to run the library in offline mode.
"""
PORT_IN_USE = """\
    sock = create_server_socket(sock_addr, reuse_port=reuse_port)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
OSError: [Errno 98] Address already in use
"""
NO_ROOM_FOR_CACHE = """\
(Worker pid=28683) ERROR 11-21 03:24:32 [multiproc_executor.py:1063] ValueError: Available memory on node 0 \
(9.65/11.46 GiB) on kv cache allocation is less than requested memory for kv (500.0 GiB).
(EngineCore pid=28668) ERROR 11-21 03:24:32 [core.py:1510] EngineCore failed to start.
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
NO_ROOM_AT_ALL = """\
(VllmWorker-0 pid=29137) ERROR 11-21 03:25:43 [multiproc_executor.py:953] ValueError: Available memory on node 0 \
(9.66/11.46 GiB) on startup is less than desired CPU memory utilization (0.92, 10.55 GiB).
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
"""
ONE_WEIGHT_TOO_MANY = """\
(EngineCore pid=21894) ERROR 11-23 11:43:32 [core.py:1510] ValueError: There is no module or parameter named 'gate' in \
Qwen3ForSequenceClassification. The available parameters belonging to  (Qwen3ForSequenceClassification) are: {'score'}
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
ROOT_CAUSE_ABOVE = ONE_WEIGHT_TOO_MANY.replace("There is no module or parameter named", "Nobody knows")
UNKNOWN_FLAG = """\
                     [--enable-log-requests | --no-enable-log-requests]
                     [model_tag]
api_server.py: error: unrecognized arguments: --no-such-flag
"""
WRONG_VALUE = "api_server.py: error: argument --dtype: invalid choice: 'float99' (choose from 'auto', 'bfloat16')\n"
TOO_LONG_FOR_MODEL = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, User-specified max_model_len (4096) is greater than the derived max_model_len
"""
OWN_CODE = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, The repository /models/rm contains custom code which must be executed to correctly load the model. You \
can inspect the repository content at https://hf.co//models/rm .
 You can inspect the repository content at https://hf.co//models/rm.
Please pass the argument `trust_remote_code=True` to allow custom code to be run. [type=value_error, input_value=]
"""
SEED_ON_A_CPU = """\
(EngineCore pid=7) ERROR 11-22 18:07:24 [core.py:1512]     gen.set_offset(gen.get_offset() - 4)
(EngineCore pid=7) ERROR 11-22 18:07:24 [core.py:1512] RuntimeError: CPU Generator does not use offset
(APIServer pid=6) ERROR 11-22 18:07:24 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore \
encountered an issue. See stack trace (above) for the root cause.
"""
NO_INVARIANCE = "RuntimeError: VLLM batch_invariant mode is not supported for MAMBA2_ATTN.\n"
NO_INVARIANT_BACKEND = """\
ValueError: Currently only ['ascend', 'fa3', 'fa4', 'flashinfer', 'intel_xpu', 'triton'] attention backends are \
supported for deterministic inference, but you explicitly specified 'torch_native'.
"""
NO_HEAD = "ERROR model refused: /models/rm lacks score.weight: its scores would come from random numbers\n"
OTHER_TOKEN = "model refused: spec.model.head.token 'maybe' is 5 tokens to this checkpoint's tokenizer, not one\n"
SGLANG_REFUSED = """\
[2026-11-22 14:19:40] Scheduler hit an exception: Traceback (most recent call last):
    raise ModelRefusedError(refusal)
__mp_main__.ModelRefusedError: SGLang has no class for MistralForSequenceClassification and would serve \
TransformersForSequenceClassification, which has no reward head: serve this model with spec.engine.name vllm

[2026-11-22 14:19:40] Received sigquit from a child process. It usually means the child failed.
[2026-11-22 14:19:40] kill_process_tree called: parent_pid=1, include_parent=True, pid=1
"""
SGLANG_OTHER_HEAD = (
    "AssertionError: Attempted to load weight (torch.Size([3, 64])) into parameter (torch.Size([1, 64]))\n"
)
SGLANG_NO_ROOM = """\
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.001
[2026-11-22 14:19:40] Received sigquit from a child process. It usually means the child failed.
"""
SGLANG_KILLED = """\
RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common \
cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.
"""
SGLANG_DIED = SGLANG_KILLED.replace("code: -9", "code: 1")
SGLANG_KILLED_LATER = """\
[2026-11-22 14:19:40] Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup...
[2026-11-22 14:19:40] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""
SGLANG_TOO_LONG_FOR_MODEL = """\
ValueError: Warning: User-specified context_length (4096) is greater than the derived context_length (1024). This may \
lead to incorrect model outputs or CUDA errors.
"""
SGLANG_PORT_IN_USE = """\
[2026-11-22 14:19:40] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 31125): \
[errno 98] address already in use
"""
SECOND_SERVER = """\
error: argument --grpc-port: not supported, it starts a server that takes requests without a key
"""
NO_KEY = "ValueError: REWARDPOOL_KEY_FILE cannot be read: [Errno 2] No such file or directory: '/key'\n"


@pytest.mark.parametrize(
    ("log", "exit_code", "reason", "quoted"),
    [
        (MISSING_FOLDER, 1, "ModelNotFound", "'/nonexistent/model'"),
        (EMPTY_FOLDER, 1, "ModelNotFound", "'/models/empty'"),
        (OFFLINE_HUB, 1, "ModelNotFound", "outgoing traffic has been disabled"),
        (UNREACHABLE_HUB, 1, "ModelNotFound", "We couldn't connect"),
        (PORT_IN_USE, 1, "PortInUse", "Address already in use"),
        (NO_ROOM_FOR_CACHE, 1, "OutOfMemory", "requested memory for kv (500.0 GiB)"),
        (NO_ROOM_AT_ALL, 1, "OutOfMemory", "desired CPU memory utilization"),
        (ONE_WEIGHT_TOO_MANY, 1, "ModelRefused", "named 'gate'"),
        (ROOT_CAUSE_ABOVE, 1, "EngineExited", "Nobody knows 'gate'"),
        (UNKNOWN_FLAG, 2, "BadArguments", "--no-such-flag"),
        (WRONG_VALUE, 2, "BadArguments", "float99"),
        (TOO_LONG_FOR_MODEL, 1, "BadArguments", "max_model_len (4096)"),
        (SEED_ON_A_CPU, 0, "BadArguments", "--no-enable-chunked-prefill"),
        (NO_INVARIANCE, 1, "BadArguments", "set spec.engine.deterministic to false"),
        (NO_INVARIANT_BACKEND, 1, "BadArguments", "explicitly specified 'torch_native'"),
        (OWN_CODE, 1, "ModelRefused", "trust_remote_code=True"),
        (NO_HEAD, 1, "ModelRefused", "lacks score.weight"),
        (OTHER_TOKEN, 2, "ModelRefused", "spec.model.head.token 'maybe'"),
        (SGLANG_REFUSED, 137, "ModelRefused", "serve this model with spec.engine.name vllm"),
        (SGLANG_OTHER_HEAD, 1, "ModelRefused", "(torch.Size([3, 64]))"),
        (SGLANG_NO_ROOM, 137, "OutOfMemory", "--mem-fraction-static"),
        (SGLANG_KILLED, 1, "OutOfMemory", "exit code: -9"),
        (SGLANG_DIED, 1, "EngineExited", "exit code: 1"),
        (SGLANG_KILLED_LATER, -9, "OutOfMemory", "exit code -9"),
        (SGLANG_TOO_LONG_FOR_MODEL, 1, "BadArguments", "context_length (4096)"),
        (SGLANG_PORT_IN_USE, 1, "PortInUse", "31125"),
        (SECOND_SERVER, 2, "BadArguments", "--grpc-port"),
        (NO_KEY, 1, "BadArguments", "REWARDPOOL_KEY_FILE"),
        ("Segmentation fault\n", 139, "EngineExited", "SIGSEGV"),
        ("", 1, "EngineExited", "exit code 1"),
        ("KeyError: 'x'\nbye\n", 1, "EngineExited", "KeyError: 'x'"),
    ],
)
def test_the_log_tells_why(log: str, exit_code: int, reason: str, quoted: str) -> None:
    diagnosis = diagnose(exit_code=exit_code, log=log)
    assert diagnosis.reason == reason
    assert quoted in diagnosis.message
    assert "\n" not in diagnosis.message


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_kill_is_told_as_one_in_both_notations(exit_code: int) -> None:
    diagnosis = diagnose(exit_code=exit_code, log=PORT_IN_USE)
    assert (diagnosis.reason, "SIGKILL" in diagnosis.message) == ("EngineExited", True)


def test_an_sglang_that_ends_its_own_processes_was_not_killed_by_somebody_else() -> None:
    message = diagnose(exit_code=137, log=SGLANG_REFUSED).message
    assert "SIGKILL" not in message
    assert "one of its processes failed" in message


def test_a_kill_for_memory_is_out_of_memory() -> None:
    assert diagnose(exit_code=137, oom_killed=True, log="").reason == "OutOfMemory"


def test_the_kept_log_is_the_bounded_end() -> None:
    kept = diagnose(exit_code=1, log="\n".join(f"line {number} {'x' * 1000}" for number in range(1000))).log
    assert len(kept) == KEPT_LINES
    assert kept[-1].startswith("line 999")
    assert max(map(len, kept)) == KEPT_CHARACTERS


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer s3cr3t-s3cr3t",
        "token=hf_s3cr3ts3cr3t",
        "using hf_s3cr3ts3cr3t to log in",
        "api_key='s3cr3t-s3cr3t', port=8000",
        '{"password": "s3cr3t-s3cr3t"}',
        "AWS_SECRET_ACCESS_KEY=s3cr3ts3cr3t",
        "https://me:s3cr3t@hub.example/model",
    ],
)
def test_no_secret_is_passed_on(line: str) -> None:
    diagnosis = diagnose(exit_code=1, log=f"Error: {line}\n")
    assert "s3cr3t" not in diagnosis.message + "".join(diagnosis.log)


def test_an_sglang_that_finds_no_accelerator_says_what_to_write_for_a_cpu() -> None:
    log = "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available."
    found = diagnose(exit_code=1, log=log)
    assert found.reason == "NoAccelerator"
    assert "SGLANG_USE_CPU_ENGINE" in found.message
    assert "--device, cpu" in found.message


@pytest.mark.parametrize(
    ("said", "reason", "advice"),
    [
        ("the module rewards has no function missing", "FunctionNotFound", "check the name behind the colon"),
        ("ModuleNotFoundError: No module named 'my'", "FunctionNotFound", "beside the manifest"),
        ("ModuleNotFoundError: No module named 'my.rewards'", "FunctionNotFound", "beside the manifest"),
        ("ModuleNotFoundError: No module named 'sympy'", "FunctionNotLoadable", "install what it imports"),
        ("rewards.py:3: ModuleNotFoundError: No module named 'sympy'", "FunctionNotLoadable", "rewards.py:3"),
        ("rewards.py:3: SyntaxError: '(' was never closed", "FunctionNotLoadable", "rewards.py:3: SyntaxError"),
        ("it cannot be called with data_source by name", "FunctionNotLoadable", "other parameters"),
        ("it is a int", "FunctionNotLoadable", "cannot be called"),
        ("rewards.py:9: ConnectionError: no route", "FunctionRaises", "rewards.py:9: ConnectionError"),
        ("its parent process ended with -11, as it imported it", "FunctionRaises", "tried again"),
    ],
)
def test_a_function_that_is_not_loaded_has_the_users_line_and_no_talk_of_a_network(
    said: str, reason: str, advice: str
) -> None:
    log = f"INFO before\nERROR not started: FunctionLoadError: cannot load the function my.rewards:score: {said}\n"
    found = diagnose(exit_code=1, log=log)
    assert (found.reason, advice in found.message, said in found.message) == (reason, True, True)
    assert "network" not in found.message

"""Cause of the end of a worker or a router: from its exit status and the end of its log to a reason and a sentence.

The reasons are what conditions and commands show; the sentence names the field to change, and quotes the line of the
log that tells. The words looked for are those vLLM 0.32, SGLang 0.5.23, sglang-router 0.3.2 and the function server
really print.
"""

import re
import signal
from dataclasses import dataclass

from rewardpool_api.reasons import DOWNLOAD_REASONS, ConditionReason
from rewardpool_worker.engine_side.middleware.errors import InvalidRequestError

LOG_TAIL_BYTES = 64 * 1024  # the cause may stand above 20 KB of usage text or tracebacks
KEPT_LINES = 12
KEPT_CHARACTERS = 300  # of a line; Kubernetes takes 1024 characters in an event and 32 KiB in a condition


@dataclass(frozen=True)
class Diagnosis:
    """Reason why a process ended."""

    reason: ConditionReason
    message: str
    log: tuple[str, ...] = ()
    """The last lines of the log, shortened, without secrets."""


@dataclass(frozen=True)
class _Symptom:
    reason: ConditionReason
    words: re.Pattern[str]
    advice: str


def _symptom(reason: ConditionReason, words: str, advice: str) -> _Symptom:
    return _Symptom(reason, re.compile(words), advice)


# The first that is found in the log counts, so what is also a symptom of something else comes first.
_SYMPTOMS = (
    _symptom(
        ConditionReason.PORT_IN_USE,
        r"Address already in use|address already in use|Port is already in use",
        "the port is taken by another process; stop it or let another port be chosen",
    ),
    _symptom(
        ConditionReason.TLS_UNUSABLE,
        r"Failed to create TLS config|Failed to read server (key|certificate)",
        "the router cannot use the Secret of spec.router.tls; tls.key must belong to tls.crt",
    ),
    _symptom(
        ConditionReason.FUNCTION_NOT_FOUND,
        r"cannot load the function .*: the module \S+ has no function ",
        "spec.model.source names a function that its module does not have; check the name behind the colon",
    ),
    _symptom(
        ConditionReason.FUNCTION_NOT_FOUND,
        r"cannot load the function (?P<top>\w+)(?P<rest>[\w.]*):\S+ .*No module named '(?P=top)((?P=rest))?'",
        "spec.model.source names a module that is not where the worker looks: beside the manifest on one machine, in a"
        " cluster's image, or in a folder that PYTHONPATH in spec.engine.env names",
    ),
    _symptom(
        ConditionReason.FUNCTION_NOT_LOADABLE,
        r"cannot load the function .*: it cannot be called with ",
        "spec.model.source names a function with other parameters; it gets data_source, solution_str, ground_truth and"
        " extra_info by name, so take these or **kwargs",
    ),
    _symptom(
        ConditionReason.FUNCTION_NOT_LOADABLE,
        r"cannot load the function \S+: it is an? ",
        "spec.model.source names what cannot be called; name a function, or an object that can",
    ),
    _symptom(
        ConditionReason.FUNCTION_NOT_LOADABLE,
        r"cannot load the function \S+: (.*:\d+: )?"
        r"(SyntaxError|IndentationError|TabError|ImportError|ModuleNotFoundError|NameError|AttributeError|TypeError): ",
        "the module of spec.model.source cannot be imported as it is; correct the line that is named, or install what"
        " it imports",
    ),
    _symptom(
        ConditionReason.FUNCTION_RAISES,
        r"cannot load the function ",
        "the module of spec.model.source failed while it was imported, which is tried again",
    ),
    _symptom(
        ConditionReason.SANDBOX_UNAVAILABLE,
        r"not started: SandboxMissingError: ",
        "spec.sandbox.onMissing is Refuse, and the machine lacks boundaries of a function; take nodes whose kernel has"
        " them, or set spec.sandbox.onMissing to Weaken, which serves without them",
    ),
    _symptom(
        ConditionReason.BAD_ARGUMENTS,
        rf"not started: {InvalidRequestError.__name__}: ",
        "the file that --probe-sample names in spec.engine.args has no sample; write one JSON object with data_source,"
        " solution_str, ground_truth and extra_info there",
    ),
    _symptom(
        ConditionReason.NO_ACCELERATOR,
        r"No accelerator \(|Failed to infer device type|No platform detected",
        "the engine finds no GPU; on a machine without one, SGLang needs `args: [--device, cpu, --mem-fraction-static,"
        ' "0.3", --max-total-tokens, "8192"]`, `env: [{name: SGLANG_USE_CPU_ENGINE, value: "1"}]` and `dtype: float32`'
        " in spec.engine, and vLLM its build for CPUs",
    ),
    _symptom(
        ConditionReason.OUT_OF_MEMORY,
        r"^no room for a step: ",
        "a teacher's log-probabilities need memory beside the engine's own; leave it as the line says",
    ),
    _symptom(
        ConditionReason.MODEL_REFUSED,
        r"^(ERROR )?model refused: ",
        "spec.model.source names a checkpoint that cannot be served as it is",
    ),
    _symptom(
        ConditionReason.MODEL_REFUSED,
        r"Please pass the argument `trust_remote_code=True`|contains custom code which must be executed",
        "the checkpoint needs the code that comes with it: read it, pin spec.model.revision, and set "
        "spec.model.trustRemoteCode to true",
    ),
    _symptom(
        ConditionReason.MODEL_NOT_FOUND,
        r"GatedRepoError|gated repo|401 Client Error",
        "the hub refuses the model; give a token by spec.model.tokenSecretRef",
    ),
    _symptom(
        ConditionReason.MODEL_NOT_FOUND,
        r"RevisionNotFoundError",
        "the model has no such revision; check spec.model.revision",
    ),
    _symptom(
        ConditionReason.MODEL_REFUSED,
        r"ModelRefusedError: |Model architectures .* are not supported|has no SGLang implementation and"
        r"|Cannot find model module|Attempted to load weight \(|There is no module or parameter named "
        r"|weights were not initialized from checkpoint",
        "the engine cannot serve this model so that its scores are right; docs/engines.md has what each engine takes",
    ),
    _symptom(
        ConditionReason.MODEL_NOT_FOUND,
        r"HFValidationError: |Invalid repository ID or local directory specified|LocalEntryNotFoundError: "
        r"|We couldn't connect to|RepositoryNotFoundError|is not a local folder and is not a valid model identifier",
        "there is no model where spec.model.source points; check the path, or the network for a hub's model",
    ),
    _symptom(
        ConditionReason.OUT_OF_MEMORY,
        r"OutOfMemoryError|out of memory|No available memory for the cache blocks|MemoryError|std::bad_alloc"
        r"|is less than desired [CG]PU memory utilization|is less than requested memory for kv"
        r"|larger than the available KV cache memory|Cannot allocate memory|Not enough memory\. Please try"
        r"|scheduler died during initialization \(exit code: -9\)|crashed with exit code -9\b",
        "the worker does not fit into memory; give it more, or lower spec.engine.maxModelLen or its memory flags in "
        "spec.engine.args (VLLM_CPU_KVCACHE_SPACE, in GiB, on a CPU; SGLang's --mem-fraction-static)",
    ),
    _symptom(
        ConditionReason.BAD_ARGUMENTS,
        r"batch invariance not supported|batch_invariant mode is not supported"
        r"|attention backends are supported for deterministic inference|combined with --enable-deterministic-inference"
        r"|Deterministic inference with ",
        "the engine has no batch invariance for this model, GPU or attention backend; set spec.engine.deterministic to "
        "false, or choose another one by --attention-backend in spec.engine.args",
    ),
    _symptom(
        ConditionReason.BAD_ARGUMENTS,
        r"CPU Generator does not use offset",
        "vLLM on a CPU ends when it computes the prompt of a request with a seed in parts, and a judge's requests have "
        "one; add --no-enable-chunked-prefill to spec.engine.args",
    ),
    _symptom(
        ConditionReason.BAD_ARGUMENTS,
        r"error: unrecognized arguments|error: argument |error: unexpected argument|Value error, |No such option"
        r"|Invalid value for |REWARDPOOL_[A-Z_]+ |is greater than the derived context_length",
        "the engine refuses how it was started; check spec.engine",
    ),
)


def diagnose(*, exit_code: int | None, log: str, oom_killed: bool = False) -> Diagnosis:
    """Return the cause of a process's end. Pure.

    Args:
        exit_code: as a shell or Kubernetes gives it (128 + signal) or as `subprocess` does (-signal); None if unknown.
        log: the last `LOG_TAIL_BYTES` of what it printed, standard output and error together.
        oom_killed: the kernel or the container runtime says that it was killed for memory.
    """
    lines = [cleaned for line in log.splitlines() if (cleaned := _clean(line))]
    kept = tuple(lines[-KEPT_LINES:])
    if oom_killed:
        return Diagnosis(
            ConditionReason.OUT_OF_MEMORY, "killed for using more memory than its limit; raise the memory limit", kept
        )
    ended, by_hand = _ending(exit_code)
    if by_hand and _KILLS_ITSELF.search(log):
        ended = "one of its processes failed, and it ended them all"
    elif by_hand:
        # What it printed while it was alive is not what ended it.
        return Diagnosis(ConditionReason.ENGINE_EXITED, ended, kept)
    download = _DOWNLOAD.fullmatch(lines[-1]) if lines else None
    if download is not None:
        return Diagnosis(
            next(one for one in _FETCH_REASONS if one == download["reason"]), download["message"], kept[:-1]
        )
    for symptom in _SYMPTOMS:
        # The last line that matches is the outermost error, with the least of the engine's inside around it.
        telling = next((line for line in reversed(lines) if symptom.words.search(line)), None)
        if telling is not None:
            return Diagnosis(symptom.reason, f"{symptom.advice} ({ended}: {telling.strip()})", kept)
    return Diagnosis(ConditionReason.ENGINE_EXITED, ended if not kept else f"{ended}: {_last_error(lines)}", kept)


_FETCH_REASONS = DOWNLOAD_REASONS | {ConditionReason.FUNCTION_NOT_FOUND, ConditionReason.FUNCTION_NOT_FETCHED}
_DOWNLOAD = re.compile(rf"(?P<reason>{'|'.join(sorted(_FETCH_REASONS))}): (?P<message>.+)")
# SGLang prints this line before it kills all of its processes, itself among them, because one of them failed.
_KILLS_ITSELF = re.compile(r"It usually means (the|one) child failed")


def _ending(exit_code: int | None) -> tuple[str, bool]:
    if exit_code is None:
        return "ended with an unknown exit code", False
    number = -exit_code if exit_code < 0 else exit_code - 128
    if number in signal.valid_signals() and number > 0:
        name = signal.Signals(number).name
        perhaps = ", perhaps by the kernel for memory" if number == signal.SIGKILL else ""
        return f"killed by {name}{perhaps}", number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    return f"exit code {exit_code}", False


def _last_error(lines: list[str]) -> str:
    """The last line that reads like an error, or else the last line."""
    errors = (line for line in reversed(lines) if _ERROR.search(line) and not _POINTS_ELSEWHERE.search(line))
    return next(errors, lines[-1])


_ERROR = re.compile(r"\b\w*(Error|Exception)\b|error:")
# A traceback's source, and vLLM's errors that say only that another one stands above.
_POINTS_ELSEWHERE = re.compile(r"^\s*raise |See root cause above|See stack trace \(above\)")


# vLLM's lines begin with process, level, time and place in its source.
_PREFIX = re.compile(r"^(\(\w[\w-]* pid=\d+\) )?((INFO|WARNING|ERROR) \d\d-\d\d [\d:]{8} \[[\w.]+:\d+\] ?)?")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SECRETS = (
    (re.compile(r"(?i)\b(bearer)\s+\S+"), r"\1 ***"),
    (re.compile(r"(?i)((?:api_?key|[_-]key|token|password|secret)['\"]?\s*[=:]\s*)['\"]?[^\s,'\"]+"), r"\1***"),
    (re.compile(r"\b(hf|sk)[_-][A-Za-z0-9_-]{8,}"), r"\1-***"),
    (re.compile(r"://[^/\s:@]+:[^/\s@]+@"), "://***@"),
)


def _clean(line: str) -> str:
    """A line of a log without colours, prefix, secrets and length; empty for a traceback's underlining."""
    line = _PREFIX.sub("", _COLOUR.sub("", line).rstrip(), count=1)
    if not line.strip(" ^~"):
        return ""
    for secret, stars in _SECRETS:
        line = secret.sub(stars, line)
    return line if len(line) <= KEPT_CHARACTERS else f"{line[: KEPT_CHARACTERS - 1]}…"

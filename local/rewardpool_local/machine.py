"""Requirements of a pool on this machine before anything is started, and its free ports."""

import json
import os
import re
import shutil
import subprocess
import symtable
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardpool_api import RewardPool, names, parse_source
from rewardpool_api.adapters import AdapterSpec
from rewardpool_local.folder import annotated
from rewardpool_local.function_code import CodeTooLargeError, FunctionCode, read_code
from rewardpool_local.gpu_shares import owners_of
from rewardpool_local.gpus import GpusUnreadableError, counted, refusal, visible_to
from rewardpool_local.process import importing_safely
from rewardpool_operator.routers.programs import PROGRAMS
from rewardpool_runtime.listeners import HeldPort
from rewardpool_worker.engines.engine import engine_for

_INSTALL = {program.package: program.requirement for program in PROGRAMS.values()}
_FIND = "import sys, importlib.util as u; print(*(m for m in sys.argv[1:] if u.find_spec(m) is None))"
_VERSIONS = """
import sys, json, importlib.metadata as metadata, importlib.util as util
def version(module):
    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        # Not called like its module.
        names = metadata.packages_distributions().get(module, [])
        return metadata.version(names[0]) if names else ""
found = [module for module in sys.argv[1:] if util.find_spec(module)]
print(json.dumps([sys.version.split()[0], {module: version(module) for module in found}]))
"""
_ORIGIN = """
import sys, importlib.util as util
try:
    spec = util.find_spec(sys.argv[1])
except ModuleNotFoundError:
    spec = None
print(spec.origin if spec and spec.has_location else "")
"""
FIND_SECONDS = 60


class NotStartableError(RuntimeError):
    """The pool cannot run on this machine; the text says why and what to do. Nothing was started."""


@dataclass(frozen=True)
class Interpreter:
    """Modules of an interpreter."""

    python: str
    modules: Mapping[str, str]
    """The wanted modules that it has, with their versions; "" where the version is unknown."""


def server_python(environ: Mapping[str, str]) -> str:
    """The interpreter that has the engine and the router: $REWARDPOOL_SERVER_PYTHON, by default this one."""
    return environ.get(names.ENV_SERVER_PYTHON) or sys.executable


def check(pool: RewardPool, *, port: int | None, environ: Mapping[str, str]) -> None:
    """Find out before the start what would make it fail.

    Raises:
        NotStartableError: a model that is not there, a port in use, or a program that is missing. Not a function, which
            `with_code` looks for.
    """
    check_variables(pool)
    check_runtime(pool)
    _check_model(pool)
    if pool.spec.router.tls is not None:
        raise NotStartableError(
            "spec.router.tls is for a cluster: a pool on one machine is reached by 127.0.0.1 alone; leave it out"
        )
    if port is not None:
        _check_port(port)
    check_gpus(pool, environ)
    modules = [*engine_for(pool.spec.engine.name).packages, PROGRAMS[pool.spec.router.flavor].package]
    _check_modules(server_python(environ), modules)


def check_gpus(pool: RewardPool, environ: Mapping[str, str]) -> None:
    """Find out whether each replica can have GPUs of its own.

    Args:
        pool: As declared; GPUs that it has already are its own.

    Raises:
        NotStartableError: there are too few, or too few that no other pool has.
    """
    if counted(pool.spec) == 0:
        return
    try:
        visible = visible_to(pool.spec, environ)
    except GpusUnreadableError as error:
        raise NotStartableError(str(error)) from None
    owners = owners_of(visible, environ, shared=pool.spec.engine.sleep.enabled)
    others = {uuid: owner for uuid, owner in owners.items() if owner != pool.key}
    refused = refusal(pool, visible, others)
    if refused is not None:
        raise NotStartableError(refused)


def unheeded(pool: RewardPool) -> tuple[str, ...]:
    """Return the fields of a manifest that have no effect on one machine, a sentence each."""
    found = []
    if pool.spec.rollout.parity is not None:
        found.append(
            "spec.rollout.parity is not checked here: the golden set is a ConfigMap, which takes Kubernetes."
            " A changed revision takes traffic as soon as it answers"
        )
    if pool.spec.autoscaling is not None and pool.spec.autoscaling.budget is not None:
        found.append(
            "spec.autoscaling.budget is shared with nobody here: pools on one machine do not know of each other."
            " It only keeps this pool from having more than its maxReplicas"
        )
    resources = pool.spec.worker.resources
    if resources.requests or resources.limits:
        found.append("spec.worker.resources bounds nothing here: a replica may use all of this machine")
    if pool.spec.worker.gpus > 0 and counted(pool.spec) == 0:
        found.append(
            f"spec.worker.gpus is not counted here for {pool.spec.worker.gpu_resource}: only NVIDIA's GPUs are. Every"
            " replica sees the same GPUs"
        )
    return tuple(found)


def check_runtime(pool: RewardPool) -> None:
    """Find out whether replicas can be what the manifest wants of them.

    Raises:
        NotStartableError: they are to be sandboxes of a cluster.
    """
    if pool.spec.sandbox is not None and pool.spec.sandbox.runtime is not None:
        raise NotStartableError(
            f"spec.sandbox.runtime {pool.spec.sandbox.runtime} needs Kubernetes: leave it out for processes of your own"
        )


def check_variables(pool: RewardPool) -> None:
    """Find out whether the value of each of the engine's variables is written down.

    Raises:
        NotStartableError: one comes from a Secret, a ConfigMap or a pod, which one machine has not.
    """
    for variable in pool.spec.engine.env:
        if variable.value_from is not None:
            raise NotStartableError(
                f"spec.engine.env[{variable.name}].valueFrom needs Kubernetes: write its value here, or leave"
                f" the entry out and set {variable.name} in the environment of `rewardpool up`"
            )


def _check_model(pool: RewardPool) -> None:
    for adapter in pool.spec.model.adapters:
        _check_adapter(adapter)
    source = parse_source(pool.spec.model.source)
    match source.scheme:
        case "file":
            if not Path(source.location).is_dir():
                raise NotStartableError(f"spec.model.source: there is no folder {source.location} on this machine")
        case "pvc":
            raise NotStartableError("spec.model.source: pvc:// needs Kubernetes; use file:///ABSOLUTE/PATH here")
        case "s3":
            raise NotStartableError("spec.model.source: s3:// needs Kubernetes; download it, and use file:// here")


def _check_adapter(adapter: AdapterSpec) -> None:
    source, field = parse_source(adapter.source), f"spec.model.adapters[{adapter.name}].source"
    if source.scheme == "pvc":
        raise NotStartableError(f"{field}: pvc:// needs Kubernetes; use file:///ABSOLUTE/PATH here")
    if source.scheme == "file" and not Path(source.location).is_dir():
        raise NotStartableError(f"{field}: there is no folder {source.location} on this machine")


def with_code(pool: RewardPool, project: Path, environ: Mapping[str, str]) -> tuple[RewardPool, FunctionCode | None]:
    """Find the code of the pool's function, if that is what it scores with.

    Args:
        environ: Of the command, whose current folder counts too.

    Returns:
        The pool with what it is asked for with, and the code.

    Raises:
        NotStartableError: function not found, or its code is too large.
    """
    source = parse_source(pool.spec.model.source)
    if source.scheme != "python":
        return annotated(pool, {names.ANNOTATION_FOLDERS: _as_text([project]), names.ANNOTATION_CODE: None}), None
    module, _, function = source.location.partition(":")
    folders = function_folders(project, pool.spec.engine.variables, environ)
    try:
        code = read_code(module, folders)
        if code.own is None:
            origin = _origin_of_installed(module, folders, environ)
            if not _is_copy(origin):
                folders = (*folders, origin.parents[module.count(".") + (origin.stem == "__init__")])
                code = read_code(module, folders)
    except CodeTooLargeError as error:
        raise NotStartableError(f"spec.model.source: the module {module}: {error}") from None
    if code.own is not None:
        origin = folders[code.own.place.folder] / code.own.place.path
    if lacks_name(origin, function):
        raise NotStartableError(f"spec.model.source: the module {module} ({origin}) has no function {function}")
    said = {
        names.ANNOTATION_FOLDERS: _as_text(folders),
        names.ANNOTATION_CODE: code.digest if code.files else None,
    }
    return annotated(pool, said), code


def _origin_of_installed(module: str, folders: Sequence[Path], environ: Mapping[str, str]) -> Path:
    """Return the file of a module.

    Raises:
        NotStartableError: it is not installed.
    """
    path = os.pathsep.join(map(str, folders))
    environ = {**environ, "PYTHONPATH": path}
    try:
        said = _run_python(sys.executable, _ORIGIN, [module], environ).strip()
    except NotStartableError as error:
        raise NotStartableError(f"spec.model.source: looking for the module {module} failed: {error}") from None
    if not said:
        raise NotStartableError(
            f"spec.model.source: there is no module {module} in {path} nor in {sys.prefix}; put it beside the manifest,"
            " or its folder into PYTHONPATH in spec.engine.env"
        )
    return Path(said)


def _is_copy(origin: Path) -> bool:
    """Return whether an installed module is a copy of edited files, and not those themselves (`pip install -e`)."""
    standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return bool({"site-packages", "dist-packages"}.intersection(origin.parts)) or any(
        map(origin.is_relative_to, standard)
    )


def lacks_name(source: Path, name: str) -> bool:
    """Return whether a module of this source binds no such name, without running it; False where that is unknown."""
    try:
        text = source.read_text()
        table = symtable.symtable(text, str(source), "exec")
        symbol = table.lookup(name)
    except KeyError:
        # A star or a module's own `__getattr__` may bring any name, and so may what runs by name at run time.
        return not re.search(r"import\s*\(?\s*\*|\b__getattr__\b|\bglobals\b|\bglobal\b|\bsetattr\b|\bexec\b", text)
    except (OSError, SyntaxError, ValueError):
        return False
    return not (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace())


def function_folders(project: Path, engine_env: Mapping[str, str], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where a function's modules are looked for before the installed ones; the first that has a module wins."""
    here = Path.cwd()
    # Of spec.engine.env, else of the environment, as for any variable.
    users = (engine_env.get("PYTHONPATH") or environ.get("PYTHONPATH") or "").split(os.pathsep)
    return tuple(dict.fromkeys([project, *(here / user for user in users if user), here]))


def folders_of(pool: RewardPool) -> tuple[Path, ...]:
    """Return the folders of a pool's code, its manifest's first; none where they are unknown."""
    return tuple(map(Path, json.loads(pool.metadata.annotations.get(names.ANNOTATION_FOLDERS, "[]"))))


def _as_text(folders: Sequence[Path]) -> str:
    # JSON in ASCII: a name may have a colon in it, and bytes that are no UTF-8.
    return json.dumps([str(folder) for folder in folders])


def _check_port(port: int) -> None:
    try:
        HeldPort(port).release()
    except OSError as error:
        raise NotStartableError(
            f"port {port} cannot be used for the router: {error.strerror}; stop what uses it, or give another --port"
        ) from None


def interpreter(python: str, modules: Sequence[str], environ: Mapping[str, str], *, seconds: float) -> Interpreter:
    """Ask an interpreter what it has; none of the modules is imported.

    Raises:
        NotStartableError: program not found, or it fails or takes longer.
    """
    _check_python(python)
    version, found = json.loads(_run_python(python, _VERSIONS, modules, environ, seconds=seconds))
    return Interpreter(python=version, modules=found)


def installation(python: str, modules: Sequence[str]) -> str:
    """Return the steps by which `rewardpool up` finds these modules."""
    packages = " ".join(_INSTALL.get(module, module) for module in modules)
    target = "setup-sglang" if "sglang" in modules else "setup-server"
    return (
        f"run `{python} -m pip install {packages}`, or set {names.ENV_SERVER_PYTHON} to an interpreter that has it"
        f" (in a checkout, `make {target}` makes one)"
    )


def _check_python(python: str) -> None:
    if shutil.which(python) is None:
        raise NotStartableError(f"{names.ENV_SERVER_PYTHON} is {python}, not an executable file")


def _check_modules(python: str, modules: Sequence[str]) -> None:
    _check_python(python)
    missing = _missing(python, modules, os.environ)
    if missing:
        raise NotStartableError(f"{python} has no {' and no '.join(missing)}: {installation(python, missing)}")


def _missing(python: str, modules: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    return _run_python(python, _FIND, modules, environ).split()


def _run_python(
    python: str, program: str, modules: Sequence[str], environ: Mapping[str, str], *, seconds: float = FIND_SECONDS
) -> str:
    try:
        found = subprocess.run(
            [python, "-c", program, *modules],
            env=importing_safely(environ),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:]
        raise NotStartableError(f"{python}: {' '.join(last) or f'exit code {error.returncode}'}") from None
    except subprocess.TimeoutExpired:
        raise NotStartableError(f"{python} did not start within {seconds:.0f} s") from None
    return found.stdout

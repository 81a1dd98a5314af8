"""`rewardpool init`: a pool's manifest, and the training config that scores by it, from flags or four questions."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rewardpool._rewards.config import parse_reward
from rewardpool_api import RewardPool, load_manifest, names, parse_source
from rewardpool_api.source import FUNCTION_SCHEME, is_function, is_source
from rewardpool_cli import screens
from rewardpool_cli.catalogue import ENTRIES, READ_IT, CannotServeError, Draft, draft, pool_name
from rewardpool_cli.catalogue.config_file import ConfigUnavailableError, read_config
from rewardpool_cli.catalogue.manifest import manifest_text, notes_of
from rewardpool_cli.errors import CommandError, RefusedError
from rewardpool_cli.targets import Where, locate

SOURCES: Final = "hf://ORG/NAME, file:///ABSOLUTE/PATH or python://MODULE:FUNCTION"
MANIFEST, CONFIG = "pool.yaml", "train.yaml"
_REPLICAS: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")
_FUNCTION_NOTE: Final = "The function is called as compute_score(data_source, solution_str, ground_truth, extra_info)"
_CONFIG: Final = """# Scores by the pool {pool}. Every key: docs/reference-config.md.
reward:
  pool: {pool}
  timeout: 120 # seconds for one sample, over all its attempts
  on_failure: raise # or skip: a sample without a score comes back as unscored, and never counts as 0
"""


def init(
    model: Annotated[str | None, typer.Option(metavar="SOURCE", help=f"{SOURCES}. Default: it is asked for.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the pool, NAME or NAMESPACE/NAME. Default: made from the model's.")
    ] = None,
    replicas: Annotated[
        str, typer.Option(metavar="N|LEAST-MOST", help="How many; of LEAST-MOST as many as trainers and requests need.")
    ] = "1",
    revision: Annotated[str, typer.Option(help="Branch, tag or commit of an hf:// model.")] = "main",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="You have read the code that comes with the model; it may run.")
    ] = False,
    weights: Annotated[
        str | None, typer.Option(help="Of several labels, in their order: how they make one score. Such as 1,0,-0.5.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Write the manifest there instead of to standard output.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the training config there as well.")
    ] = None,
) -> None:
    """Write the manifest that serves a reward model, by its config.json; refuse what no engine can serve.

    Without --model, in a terminal, it asks four questions, and writes manifest and training config.

    Example: rewardpool init --model hf://Skywork/Skywork-Reward-V2-Qwen3-0.6B -f pool.yaml --config train.yaml
    """
    if model is None:
        model = _asked_model()
        name = name or _prompt("What is the pool called?", pool_name(model), _check_name)
        replicas = _prompt("How many replicas? LEAST-MOST follows the load.", replicas, _check_size)
        if file is None and config is None:
            folder = Path(_prompt("Into which folder?", ".", _check_folder))
            file, config = folder / MANIFEST, folder / CONFIG
    for option, path in (("--file", file), ("--config", config)):
        if path is not None and path.exists():
            raise RefusedError(f"{option}: {path} exists already; remove it, or name another")
    _check_source(model)
    size = _size(replicas)
    given = name or pool_name(model)
    _check_name(given)
    try:
        written = _draft(model, given, revision=revision, trusted=trust_remote_code, weights=_numbers(weights))
    except CannotServeError as error:
        raise RefusedError(f"{model} cannot be served: {error}") from None
    except ConfigUnavailableError as error:
        raise CommandError(str(error)) from None
    text = manifest_text(_sized(written, given, size))
    pool = load_manifest(text, origin="what init would write")
    if file is None:
        typer.echo(text, nl=False)
    else:
        _write(file, text)
        screens.err.print(
            f"{file} is written; run it with `rewardpool up -f {file}` or `kubectl apply -f {file}`", soft_wrap=True
        )
    if config is not None:
        _write(config, training_config(pool))
        screens.err.print(f"{config} is written; give it to your trainer", soft_wrap=True)


def training_config(pool: RewardPool) -> str:
    """The part of a training config that scores by the pool, as YAML."""
    parse_reward(pool.key)
    return _CONFIG.format(pool=pool.key)


def _asked_model() -> str:
    if not in_terminal():
        raise RefusedError(f"--model is missing: give {SOURCES}, or run `rewardpool init` in a terminal, which asks")
    return _prompt("What scores? A model or a function.", None, _check_source, hint=SOURCES)


def in_terminal() -> bool:
    """Return whether a person can answer questions."""
    return sys.stdin.isatty()


def _prompt(question: str, default: str | None, check: Callable[[str], None], *, hint: str = "") -> str:
    """The answer to a question; one that cannot be used is said so, and asked again."""
    while True:
        answer: str = typer.prompt(f"{question} {hint}".strip(), default=default, err=True).strip()
        try:
            check(answer)
        except RefusedError as error:
            screens.err.print(str(error), markup=False, soft_wrap=True)
        else:
            return answer


def _check_source(model: str) -> None:
    if not is_source(model) or parse_source(model).scheme not in ("hf", "file", "python"):
        raise RefusedError(f"--model must be {SOURCES}, not {model}")


def _check_name(name: str) -> None:
    short = locate(name, Where(local=True)).name or ""
    if re.fullmatch(names.POOL_NAME_PATTERN, short) is None or len(short) > names.MAX_POOL_NAME:
        raise RefusedError(
            f"--name {name} is not the name of a pool: give at most {names.MAX_POOL_NAME} lower-case letters, digits"
            " and hyphens, with a letter first"
        )


def _check_folder(folder: str) -> None:
    if not Path(folder).is_dir():
        raise RefusedError(f"there is no folder {folder}; make it, or name another")
    taken = [str(path) for path in (Path(folder) / MANIFEST, Path(folder) / CONFIG) if path.exists()]
    if taken:
        raise RefusedError(f"{' and '.join(taken)} is there already; remove it, or name another folder")


def _check_size(given: str) -> None:
    _size(given)


def _size(given: str) -> dict[str, Any]:
    found = _REPLICAS.fullmatch(given.strip())
    if found is None or (found[2] is not None and int(found[1]) > int(found[2])) or int(found[2] or found[1]) < 1:
        raise RefusedError(
            f"--replicas must be a number such as 2, or two such as 0-4 with the smaller first, not {given}"
        )
    if found[2] is None:
        return {"replicas": int(found[1])}
    policies = [
        {"type": "Demand", "demand": {"drainSeconds": 5}},
        {"type": "QueueDepth", "queueDepth": {"targetPerReplica": 32}},
    ]
    return {"autoscaling": {"minReplicas": int(found[1]), "maxReplicas": int(found[2]), "policies": policies}}


def _sized(written: Draft, name: str, size: dict[str, Any]) -> Draft:
    namespace, _, short = name.rpartition("/")
    metadata = {"name": short, **({"namespace": namespace} if namespace else {})}
    spec = {key: value for key, value in written.manifest["spec"].items() if key not in ("replicas", "autoscaling")}
    manifest = {**written.manifest, "metadata": metadata, "spec": {**spec, **size}}
    return Draft(manifest, written.notes)


def _draft(source: str, name: str, *, revision: str, trusted: bool, weights: list[float]) -> Draft:
    short = name.rpartition("/")[2]
    if is_function(source):
        spec = {"model": {"source": source}, "worker": {"gpus": 0}}
        manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": short}, "spec": spec}
        return Draft(manifest, (f"{_FUNCTION_NOTE}; {_where(source)}",))
    listed = _listed(source, revision, short, trusted=trusted)
    if listed is not None:
        return listed
    config = read_config(source, revision=revision)
    return draft(config, source=source, revision=revision, name=short, trust_remote_code=trusted, weights=weights)


def _where(source: str) -> str:
    module = source.removeprefix(FUNCTION_SCHEME).partition(":")[0]
    return (
        f"`rewardpool up` finds the module {module} beside the manifest, and a cluster in"
        " spec.worker.podTemplate's image or in a mounted ConfigMap"
    )


def _listed(source: str, revision: str, name: str, *, trusted: bool) -> Draft | None:
    repository = parse_source(source).location
    entry = next((entry for entry in ENTRIES if repository in entry.repositories), None)
    if entry is None:
        return None
    if entry.spec is None:
        raise CannotServeError(entry.notes)
    if entry.spec["model"].get("trustRemoteCode") and not trusted:
        raise CannotServeError(f"its score is computed by its own code. {READ_IT}")
    manifest = entry.manifest_for(source, name)
    if revision != "main":
        manifest["spec"]["model"]["revision"] = revision
    size = () if repository == entry.repository else (f"Written for {entry.repository}: check the number of GPUs",)
    return Draft(manifest, (*notes_of(entry), *size))


def _numbers(given: str | None) -> list[float]:
    try:
        return [float(part) for part in given.split(",")] if given else []
    except ValueError:
        raise RefusedError(f"--weights must be numbers with commas between them, not {given}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise RefusedError(f"{path} cannot be written: {error.strerror}; name another file") from None

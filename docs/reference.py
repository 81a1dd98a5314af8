"""`python docs/reference.py [--check]`: write the reference pages of the API, the command line, configs and Python.

Each is made from what the code says: the CRD's schema, typer's commands, pydantic's models, and signatures with their
docstrings. `make lint` runs `--check`.
"""

import argparse
import ast
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import rewardpool
import rewardpool_train
from rewardpool._config import RewardConfig
from rewardpool._rewards.config import Mixing
from rewardpool._rewards.ledger.config import LedgerConfig
from rewardpool._rewards.part_config import FunctionPart, JudgeConfig, LengthPenaltyPart, MetaConfig, PoolPart
from rewardpool_api.schema import custom_resource_definition
from rewardpool_cli import app
from rewardpool_train.config import TrainConfig

FOLDER = Path(__file__).parent
MADE = "Made from the code by `make reference`; edit the code, not this page.\n"


def table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """The lines of a table."""
    lines = [titles, tuple("---" for _ in titles), *rows]
    return [
        f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |" for cells in lines
    ]


def code(text: object) -> str:
    """The text as code, where there is any."""
    return f"`{text}`" if str(text) else ""


# The API: what the CRD's schema says.


def api_page() -> str:
    """All fields of a RewardPool."""
    [version] = custom_resource_definition()["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    parts = [
        "# Fields of a RewardPool\n",
        MADE,
        "`kubectl explain rewardpool.spec.model` says the same. A field in **bold** must be set where its parent is.",
    ]
    for top in ("spec", "status"):
        fields = schema[top]["properties"]
        plain = {name: field for name, field in fields.items() if not _inner(field)}
        parts += [
            f"\n## {top}\n",
            *_api_table(top, schema[top] | {"properties": plain}),
            *_api_rules(schema[top], below=False),
        ]
        for name, field in fields.items():
            if name not in plain:
                path = f"{top}.{name}{'[]' if field['type'] == 'array' else ''}"
                parts += [f"\n### {path}\n", field["description"], "", *_api_table(path, _inner(field) or {})]
                parts += _api_rules(field)
    return "\n".join(parts) + "\n"


def _inner(field: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema whose properties are the fields below a field."""
    schemas = (field, field.get("items"), field.get("additionalProperties"))
    return next((schema for schema in schemas if isinstance(schema, dict) and schema.get("properties")), None)


def _api_table(path: str, schema: Mapping[str, Any]) -> list[str]:
    return table(("field", "type", "default", "means"), _api_rows(path, "", schema))


def _api_rows(path: str, prefix: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, field in schema.get("properties", {}).items():
        full, inner = f"{prefix}{name}", _inner(field)
        shown = f"**`{full}`**" if name in schema.get("required", ()) else f"`{full}`"
        default = field.get("default", "")
        yield shown, _api_type(field), "" if default == "" else code(_json(default)), field.get("description", "")
        if inner is not None:
            below = "[]." if field["type"] == "array" else ".*." if "additionalProperties" in field else "."
            yield from _api_rows(path, full + below, inner)


def _json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _api_type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(code(choice) for choice in field["enum"])
    if field.get("type") == "array":
        return f"list of {field['items'].get('type', 'any')}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"map of {field['additionalProperties'].get('type', 'quantity')}"
    kind = "quantity" if "x-kubernetes-int-or-string" in field else field.get("type", "any")
    least, most = field.get("minimum"), field.get("maximum")
    return ", ".join(
        [kind, *([f"≥ {least}"] if least is not None else []), *([f"≤ {most}"] if most is not None else [])]
    )


def _api_rules(schema: Mapping[str, Any], *, below: bool = True) -> list[str]:
    messages = list(dict.fromkeys(_messages(schema, below=below)))
    return ["", "Refused, with the message:", "", *(f"- {message}" for message in messages)] if messages else []


def _messages(schema: Mapping[str, Any], *, below: bool = True) -> Iterator[str]:
    yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    inner = (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties"))
    for field in inner if below else ():
        if isinstance(field, dict):
            yield from _messages(field)


# The command line: what typer says.


CLI_HEAD = """\
`rewardpool` works on pools of this machine and on pools of a cluster. `kubectl rewardpool …` is the same program, and
searches the cluster only.

Results go to standard output; progress and errors go to standard error. `--json` outputs JSON. `-f -` is standard
input; of a manifest with several documents the one RewardPool counts.

| exit code | means |
| --- | --- |
| 0 | done |
| 1 | it was tried and failed; the pool was not found |
| 2 | it was refused, and nothing was started or changed |
| 130, 143 | interrupted by Ctrl-C or SIGTERM; `up`, `page`, `gateway` and `operator run` then finish and end with 0 |

## Which pool

A pool is `NAME` or `NAMESPACE/NAME`. The first of these that applies says where it is:

1. `--local` or `--cluster`;
2. `--context NAME`, or the program being called by kubectl: the cluster;
3. this machine, when a pool of that name was started here (without a name: when any pool was);
4. the cluster of `$KUBECONFIG`, of the pod it runs in, or of `~/.kube/config`, if there is one;
5. this machine.

The namespace is that of the name, else `-n`, else that of the kubeconfig's context or of the pod, else `default`.

Only this machine has `up`, `down` and `delete`; only a cluster has `rotate-key`.

## Rights

Kubernetes' own roles are enough: `view` for `status`, `top`, `explain` and `logs`, `edit` for the rest; the chart adds
RewardPools to both. Without the right to see pods, you see what the pool's conditions say. Samples per second in `top`
need the right to `get` `pods/proxy`, and a network policy that lets the API server reach the routers; `?` is what
cannot be measured.

## Notes on some commands

- `doctor`: run it first, and when nothing starts. It changes nothing. Exit code 1 means that something needed is
  missing or failed; what is needed depends on [where pools are](#which-pool). With `--json` each line has
  `place`, `name`, `state` (`ok`, `warning`, `missing`, `failed`), `found`, `remedy` and `essential`.
- `explain`: what keeps the rest from happening comes first. `✗` is a problem, `…` only takes time, `·` is for
  information. Indented lines quote Kubernetes, the engine or the operator. With `--json` every explanation has `cause`,
  `kind`, `what`, `said` and `next`; the causes are in `cli/rewardpool_cli/explain/advice.yaml`.
- `init`: reads a model's `config.json` and downloads no weights. A hub's model needs the extra `[download]`;
  `HF_TOKEN`, `HF_ENDPOINT` and the hub's cache apply. It overwrites no file. It refuses, with exit code 2, a model that
  no engine can serve; one that only its own code can score, until you have read that code and give
  `--trust-remote-code`; and one with several labels, until `--weights` says how they make one score. A hub that does
  not answer ends it with 1.
- `logs`: shows at most 32 containers at a time; `-f` adds those that start later. `--since` and `--previous` are for
  clusters.
- `rollback`: goes to the stable revision or, where that one serves, to the one before it; `--to-revision` names another
  that is kept. In a cluster it patches the spec only if nobody changed the pool in the meantime; on this machine the
  function's code goes back too. Change the manifest in your repository and the code as well, or the next apply or `up`
  brings the failed revision back ([rollouts](revisions.md)).
- `down` and `delete` with `-f`: a manifest in another folder than that of the pool's is refused, with both folders. A
  pool that is meant all the same has a name.
- `scale`, `restart`, `rollback` and `rotate-key` show their progress until it is done; `--no-wait` returns at once.

## Completion

Install it once; every new shell has it. It completes commands, options, their values and the names of this machine's
pools, not those of a cluster's. The tests load it into a real bash, not into zsh or fish.

| shell | |
| --- | --- |
| bash, zsh, fish | `rewardpool --install-completion` adds a line to the shell's start-up file |
| bash, by hand | `source <(_REWARDPOOL_COMPLETE=source_bash rewardpool)` in `~/.bashrc` |
| zsh, by hand | `_REWARDPOOL_COMPLETE=source_zsh rewardpool > "${fpath[1]}/_rewardpool"` |
| fish, by hand | `_REWARDPOOL_COMPLETE=source_fish rewardpool > ~/.config/fish/completions/rewardpool.fish` |
"""


def cli_page() -> str:
    """Every command with its options."""
    parts = ["# Command line\n", MADE, CLI_HEAD.rstrip()]
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        parts += _command(f"rewardpool {name}", getattr(command, "real", command))
    return "\n".join(parts) + "\n"


def _command(name: str, command: Any) -> list[str]:
    text, _, example = (command.help or "").partition("Example: ")
    lines = [f"\n## {name}\n", " ".join(text.split())]
    if hasattr(command, "commands"):
        return lines + [line for inner, it in command.commands.items() for line in _command(f"{name} {inner}", it)]
    if example:
        lines += ["", f"```\n{example.strip()}\n```"]
    rows = [
        (_typed(option), "required" if option.required else code(_cli_default(option.default)), option.help or "")
        for option in command.params
        if not option.hidden
    ]
    return [*lines, "", *table(("option", "default", "means"), rows)] if rows else lines


def _typed(option: Any) -> str:
    """What one types for an option or an argument."""
    if option.param_type_name == "argument":
        return code(option.metavar or option.name.upper())
    return ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))


def _cli_default(default: object) -> str:
    if default is None or default is False or callable(default) or default in ((), []):
        return ""
    return _json(getattr(default, "value", default))


# Configs: what pydantic's models say.


def config_page() -> str:
    """Every key of a reward's config and of a training job's."""
    own = set(MetaConfig.model_fields) - set(RewardConfig.model_fields)
    parts = [
        "# Config keys\n",
        MADE,
        "A wrong or unknown key is refused with its path. A key in **bold** must be set where its map is.\n",
        "## How a pool is found and asked\n",
        "Under `reward`; [trainer](trainer.md) explains them.\n",
        *_config_table(RewardConfig),
        "\n## A mixture\n",
        "Under `reward`, beside `rewards`, the list of parts; [rewards](rewards.md) explains them.\n",
        *_config_table(Mixing),
        "\n### A part that is a pool\n",
        "Beside the keys of the first table.\n",
        *_config_table(PoolPart, without={"client", "judge"}),
        "\n### A part that is a function\n",
        *_config_table(FunctionPart),
        "\n### A part that is a penalty on length\n",
        *_config_table(LengthPenaltyPart),
        "\n## A ledger\n",
        "Under `ledger` of the reward; [scoring files](score-files.md#a-ledger-of-scores) shows it.\n",
        *_config_table(LedgerConfig),
        "\n## A judge\n",
        "Under `judge` of a Generative pool.\n",
        *_config_table(JudgeConfig, without={"meta"}),
        "\n### judge.meta\n",
        "Beside the keys of the first table.\n",
        *_config_table(MetaConfig, without=set(MetaConfig.model_fields) - own),
        "\n## A training job\n",
        "The file of `python -m rewardpool_train FILE`; [a training run](training.md) begins with one.\n",
        *_config_table(TrainConfig),
    ]
    return "\n".join(parts) + "\n"


def _config_table(model: type[BaseModel], *, without: Iterable[str] = ()) -> list[str]:
    return table(("key", "type", "default", "means"), _config_rows(model, "", frozenset(without)))


def _config_rows(model: type[BaseModel], prefix: str, without: frozenset[str]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if name in without:
            continue
        path, inner = f"{prefix}{name}", _model(field.annotation)
        shown = f"**`{path}`**" if field.is_required() else f"`{path}`"
        meaning = field.description or (inner.__doc__ if inner else None) or ""
        yield shown, _config_type(field), _config_default(field), meaning
        if inner is not None:
            listed = typing.get_origin(field.annotation) in (list, tuple)
            yield from _config_rows(inner, f"{path}[]." if listed else f"{path}.", frozenset())


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model that a key's value is, or has several of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model, typing.get_args(annotation))), None)


def _config_type(field: FieldInfo) -> str:
    bounds = [f"{sign} {value}" for sign, value in _bounds(field.metadata)]
    return ", ".join([_type(field.annotation), *bounds])


def _bounds(metadata: Iterable[object]) -> Iterator[tuple[str, object]]:
    for found in metadata:
        for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            if getattr(found, name, None) is not None:
                yield sign, getattr(found, name)


def _type(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0]) + "".join(f", {sign} {value}" for sign, value in _bounds(_flat(arguments[1:])))
    if origin is typing.Literal:
        return " or ".join(code(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments if argument is not type(None))
    if origin in (list, tuple):
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"map of {_type(arguments[1])}"
    if origin is not None:
        return "function"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "map"
    words = {str: "text", bool: "true or false", int: "whole number", float: "number", Path: "path"}
    return words.get(annotation, "any")


def _flat(metadata: Iterable[Any]) -> Iterator[Any]:
    for found in metadata:
        yield from found.metadata if isinstance(found, FieldInfo) else (found,)


def _config_default(field: FieldInfo) -> str:
    default = field.default
    if field.is_required() or default is None or isinstance(default, BaseModel) or default in ((), "", {}):
        return ""
    return code(_json(list(default) if isinstance(default, tuple) else default))


# Python: what signatures and docstrings say.


def python_page() -> str:
    """The names of `rewardpool` and `rewardpool_train`."""
    parts = ["# Python API\n", MADE]
    for package in (rewardpool, rewardpool_train):
        parts += [f"## {package.__name__}\n", (package.__doc__ or "").partition("\n\n")[0], ""]
        for name in package.__all__:
            if not name.startswith("_"):
                parts += _python_name(package, name)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _python_name(package: types.ModuleType, name: str) -> list[str]:
    found = getattr(package, name)
    module = import_module(getattr(found, "__module__", "") if callable(found) else package._MODULE_OF[name])
    body = ast.parse(Path(str(module.__file__)).read_text()).body
    lines = [f"### {package.__name__}.{name}\n"]
    for index, node in enumerate(body):
        match node:
            case ast.ClassDef(name=named) if named == name:
                return lines + _python_class(node, inherited=_inherited(package, found))
            case ast.FunctionDef(name=named) | ast.AsyncFunctionDef(name=named) if named == name:
                return [*lines, _signature(node), "", *_docstring(ast.get_docstring(node))]
            case ast.Assign(targets=[ast.Name(id=named)], value=value) if named == name:
                return [*lines, _python(f"{name} = {ast.unparse(value)}"), "", *_said_after(body, index)]
    raise LookupError(f"{module.__name__} does not define {name}")


def _inherited(package: types.ModuleType, cls: type) -> Iterator[ast.FunctionDef]:
    """Methods that a class has from a base of its package's that has no place of its own on the page."""
    for base in cls.__mro__[1:]:
        if base.__module__.startswith(f"{package.__name__}.") and base.__name__ not in package.__all__:
            source = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            yield from (part for part in source.body if isinstance(part, ast.FunctionDef))  # type: ignore[attr-defined]


def _python(text: str) -> str:
    return f"```text\n{text}\n```"


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, name: str = "", bound: bool = False) -> str:
    """The head of a function, as one calls it."""
    arguments = node.args
    if bound:
        arguments.args = arguments.args[1:]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and not name else ""
    asynchronous = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return _python(f"{asynchronous}{name or node.name}({ast.unparse(arguments)}){returns}")


def _python_class(node: ast.ClassDef, *, inherited: Iterable[ast.FunctionDef]) -> list[str]:
    lines = []
    functions = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    defined = {function.name for function in functions}
    functions += [function for function in inherited if function.name not in defined]
    for function in functions:
        if function.name == "__init__":
            lines += [_signature(function, name=node.name, bound=True), ""]
    bases = [ast.unparse(base) for base in node.bases]
    if any(base.endswith("Error") or base in ("Exception", "TimeoutError") for base in bases):
        lines += [f"An error: {', '.join(code(base) for base in bases)}.", ""]
    lines += _docstring(ast.get_docstring(node))
    if fields := list(_python_fields(node)):
        lines += ["", *table(("field", "type", "default", "means"), fields), ""]
    for function in functions:
        if function.name[0] != "_" and (documented := ast.get_docstring(function)):
            decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
            bound = "staticmethod" not in decorators
            head = f"`{function.name}`:" if "property" in decorators else _signature(function, bound=bound)
            lines += ["", head, "", *_docstring(documented)]
    return [*lines, ""]


def _python_fields(node: ast.ClassDef) -> Iterator[tuple[str, ...]]:
    for index, part in enumerate(node.body):
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.target.id[0] != "_":
            default = ast.unparse(part.value) if part.value else ""
            said = " ".join(_said_after(node.body, index))
            yield code(part.target.id), code(ast.unparse(part.annotation)), code(default), said


def _said_after(body: list[ast.stmt], index: int) -> list[str]:
    """The docstring of an assignment: a text that comes right after it."""
    match body[index + 1 : index + 2]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return [" ".join(text.split())]
    return []


def _docstring(text: str | None) -> list[str]:
    """A docstring as Markdown: its sections become lists, an indented part stays as it is."""
    lines: list[str] = []
    for part in (text or "").split("\n\n"):
        title, _, rest = part.partition("\n")
        if title in ("Args:", "Attributes:", "Raises:", "Returns:", "Yields:"):
            items = re.split(r"\n(?=    \S)", f"\n{rest}")[1:]
            said = [re.sub(r"^(\w+): ", r"`\1`: ", " ".join(item.split())) for item in items]
            lines += [f"{title}", "", *(f"- {item}" for item in said), ""]
        else:
            lines += [f"```text\n{part}\n```" if re.search(r"^    |^\w+\.\w+ = |^import ", part, re.M) else part, ""]
    return lines


PAGES: dict[str, Callable[[], str]] = {
    "reference-api.md": api_page,
    "reference-cli.md": cli_page,
    "reference-config.md": config_page,
    "reference-python.md": python_page,
}


def main() -> int:
    """Write the pages, or say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="do not write; fail when a page is stale")
    check = parser.parse_args().check
    status = 0
    for name, page in PAGES.items():
        file, text = FOLDER / name, page()
        if not check:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            sys.stderr.write(f"{file} is stale: run `make reference`\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

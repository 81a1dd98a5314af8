"""The commands, each imported when it is called: a command of a second must not load what another one needs.

`rewardpool --help` shows the sentences of this table; everything else of a command, its options among them, is in its
module, whose docstring begins with the same sentence.
"""

import re
from functools import cached_property
from importlib import import_module
from typing import Any, Final

import typer.main
from typer.core import TyperCommand, TyperGroup

COMMANDS: Final = {
    "up": "Run a pool on this machine, or give a running one its changed manifest or code.",
    "down": "Stop a pool of this machine: requests in flight finish, no process is left.",
    "delete": "Delete what a stopped pool left on this machine: its status, its keys, its logs.",
    "status": (
        "Show a pool: its workers and its conditions; without a name, all pools of this machine or of the namespace."
    ),
    "top": "Show replicas and load of pools, the busiest first, every two seconds until interrupted.",
    "page": "Show the pools of this machine in the browser: sizes, load, jobs and logs, live; until interrupted.",
    "explain": "Say in words why a pool is not ready, or has the size it has, and what to do next.",
    "doctor": (
        "Say what is installed, what can be reached and what you may do, each with its remedy where it is not so."
    ),
    "logs": "Show the logs of a pool's workers and routers.",
    "scale": "Change the number of replicas of a running pool; what is in flight finishes.",
    "restart": "Replace all workers by new ones of the same spec, as a rollout: no request is lost.",
    "rollback": "Give a pool the model, engine and worker parts of an earlier revision's spec again.",
    "rotate-key": "Replace the keys of a pool by new ones while it serves: no request is lost.",
    "score": "Score one text, one conversation or the rows of a file as a trainer would.",
    "eval": ("Show how often a pool scores the chosen answer above the rejected one, by subset, as RewardBench does."),
    "rescore": "Score the records of a ledger again, and show how the scores agree with those that they had.",
    "verify": "Compare a live pool's scores with those that its model should give. Exit code 1: they differ.",
    "gateway": (
        "Answer the protocols of OpenRLHF (/get_reward), slime (/slime) and SandboxFusion (/run_code) from a pool."
    ),
    "models": "List the popular reward models and how each is served, or print the manifest of one.",
    "init": "Write the manifest that serves a reward model, by its config.json; refuse what no engine can serve.",
    "simulate": "Simulate autoscaling policies on traces of training: how long trainers stall, and what the GPUs cost.",
    "trace": "Traces for `rewardpool simulate`.",
    "operator": "The Kubernetes operator.",
    "crd": "Print the CustomResourceDefinition.",
}
"""Name → first sentence. Its module is called the same, and has a function of that name, or a group's `app`."""


_SHOULD_BE: Final = re.compile(r"^Input should be ")


class LazyCommand(TyperCommand):
    """A command that is known by its name and its first sentence until it is called."""

    def __init__(self, name: str, sentence: str) -> None:
        """Import nothing yet."""
        super().__init__(name, callback=None, help=sentence)
        self._module = name.replace("-", "_")

    @cached_property
    def real(self) -> Any:
        module = import_module(f"rewardpool_cli.commands.{self._module}")
        if hasattr(module, "app"):
            return typer.main.get_group(module.app)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(self.name)(getattr(module, self._module))
        return typer.main.get_command(alone)

    def make_context(self, *args: Any, **rest: Any) -> Any:
        """Read the arguments as the command itself does; what is called afterwards is its own callback."""
        return self.real.make_context(*args, **rest)


class Commands(TyperGroup):
    """All of the table."""

    def __init__(self, **rest: Any) -> None:
        super().__init__(**rest)
        for name, sentence in COMMANDS.items():
            self.add_command(LazyCommand(name, sentence))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; say why a value is refused without the words of the library that checked it."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = in_words(error.message)
            raise


def in_words(message: str) -> str:
    """Return why a value is refused, as a user reads it."""
    message = message.removeprefix("Value error, ")
    number = re.match(r"Input should be a valid (integer|number)", message)
    return (
        f"it must be {'a whole' if number[1] == 'integer' else 'a'} number"
        if number
        else _SHOULD_BE.sub("it must be ", message)
    )

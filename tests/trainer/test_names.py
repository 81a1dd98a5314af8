"""What `import rewardpool` gives: every name that a trainer needs, at once and without what it does not use."""

import inspect
import subprocess
import sys

import rewardpool
from rewardpool import errors

HOOKS = {"clock", "environ", "find", "hedging", "injected", "sources", "sleep", "uniform"}


def test_every_name_is_there_and_no_other() -> None:
    assert [name for name in rewardpool.__all__ if not hasattr(rewardpool, name)] == []
    assert "spoon" not in dir(rewardpool)
    assert not hasattr(rewardpool, "spoon")


def test_every_error_is_at_the_top() -> None:
    raised = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert raised <= set(rewardpool.__all__)


def test_the_version_is_that_of_the_distribution() -> None:
    assert rewardpool.__version__.count(".") == 2


def test_no_name_takes_what_only_tests_need() -> None:
    named = [getattr(rewardpool, name) for name in rewardpool.__all__]
    kinds = [one for one in named if inspect.isclass(one) and not issubclass(one, Exception | str)]
    methods = [one for kind in kinds for name, one in inspect.getmembers(kind, inspect.isroutine) if name[0] != "_"]
    taken = {
        f"{one.__qualname__}({parameter})"
        for one in [*filter(inspect.isroutine, named), *kinds, *filter(inspect.isfunction, methods)]
        for parameter in inspect.signature(one).parameters
        if parameter in HOOKS
    }
    assert taken == set()


def test_importing_it_imports_neither_a_client_nor_pydantic() -> None:
    said = "import sys, rewardpool; print(*({'aiohttp', 'pydantic', 'rich', 'yaml'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", said], text=True).split() == []


def test_type_checkers_see_the_names_that_there_are() -> None:
    text = inspect.getsource(rewardpool)
    assert {name for name in rewardpool.__all__ if f" as {name}\n" not in text} == {"__version__"}

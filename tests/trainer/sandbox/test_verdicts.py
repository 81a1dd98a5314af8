"""What a verdict says of tests, calls and assertions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardpool.sandbox import Call, run
from rewardpool.sandbox.runner import same

ADD = "def add(a, b):\n    return a + b\n"


def test_calls_are_counted_one_by_one() -> None:
    calls = [Call(function="add", args=(1, wanted - 1), expected=wanted) for wanted in (2, 3)]
    verdict = run(ADD, calls=[*calls, Call(function="add", args=[1, 1], expected=3)])
    assert (verdict.outcome, verdict.passed, verdict.total, verdict.values) == ("failed", 2, 3, [2, 3, 2])
    assert (verdict.message, round(verdict.score, 2)) == ("add returned 2 and not 3", 0.67)


def test_a_call_may_be_of_a_method() -> None:
    code = "class Solution:\n    def add(self, a, b):\n        return a + b\n"
    assert run(code, calls=[Call(function="Solution().add", kwargs={"a": 1, "b": 2}, expected=3)]).score == 1


def test_a_call_that_raises_does_not_cost_the_others() -> None:
    calls = [Call(function="add", args=[1, "a"], expected=1), Call(function="add", args=[1, 1], expected=2)]
    verdict = run(ADD, calls=calls)
    assert (verdict.outcome, verdict.passed) == ("raised", 1)
    assert verdict.message.startswith("TypeError: ")
    assert verdict.message.endswith(" in line 2")


def test_tests_compare_what_a_program_writes() -> None:
    verdict = run("print(int(input()) * 2)", tests=[("4", "8"), ("5", "10 \n\n"), ("6", "13")])
    assert (verdict.passed, verdict.total, verdict.message) == (2, 3, "wrote '12\\n' and not '13'")


@pytest.mark.parametrize("end", ["exit()", "exit(0)", "import os; os.write(1, b''); os._exit(0)"])
def test_a_program_may_end_itself(end: str) -> None:
    assert run(f"print(1, flush=True)\n{end}", tests=[("", "1")]).outcome == "passed"


@pytest.mark.parametrize("read", ["input()", "open(0).readline()", "__import__('sys').stdin.buffer.read().decode()"])
def test_a_program_reads_its_input_as_any_other(read: str) -> None:
    assert run(f"print({read})", tests=[("é1", "é1")]).outcome == "passed"


def test_a_program_with_an_exit_code_fails() -> None:
    verdict = run("print(1)\nexit(3)", tests=[("", "1")])
    assert (verdict.outcome, verdict.passed, verdict.message) == ("exited", 0, "called exit(3)")


def test_assertions_call_the_code_and_see_its_exceptions() -> None:
    code = "def root(x):\n    if x < 0: raise ValueError('negative')\n    return x ** 0.5\n"
    raises = (
        "try:\n    root(-1)\nexcept ValueError as error:\n    assert str(error) == 'negative'\nelse:\n    assert False"
    )
    verdict = run(code, asserts=["assert root(4) == 2", raises, "assert root(4) == 3, 'no'"])
    assert (verdict.outcome, verdict.passed, verdict.message) == (
        "failed",
        2,
        "assert root(4) == 3, 'no' does not hold: no",
    )


@pytest.mark.parametrize(
    "code",
    [
        "import builtins\nbuiltins.AssertionError = ValueError\ndef f(): return 2",
        "def f(): raise AssertionError",
        "def f(): exit(0)",
        "import os\ndef f(): os._exit(0)",
        "def f(): return f",
        "def check(*_): return True\ndef f(): return 2",
        "import sys\ndef f():\n frame = sys._getframe()\n while frame.f_back: frame = frame.f_back\n"
        " frame.f_locals['passed'] = 1\n return 2",
    ],
)
def test_code_cannot_make_an_assertion_hold(code: str) -> None:
    verdict = run(code, asserts=["assert f() == 1"])
    assert (verdict.passed, verdict.total) == (0, 1)


def test_without_a_test_there_is_no_score() -> None:
    with pytest.raises(ValueError, match="nothing was tested"):
        run("pass").score  # noqa: B018


def test_random_numbers_differ_between_runs() -> None:
    values = [run("import random\ndef f(): return random.random()", calls=[Call(function="f", expected=0)]).values]
    values += [run("import random\ndef f(): return random.random()", calls=[Call(function="f", expected=0)]).values]
    assert values[0] != values[1]


def test_preloaded_modules_are_there() -> None:
    code = "import numpy\ndef f(): return float(numpy.linalg.svd(numpy.eye(3))[1].sum())"
    verdict = run(code, calls=[Call(function="f", expected=3.0, tolerance=1e-9)], preload=("numpy",))
    assert verdict.outcome == "passed", verdict


def test_all_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError) as error:
        run(
            "pass",
            tests=[("a",)],  # type: ignore[list-item]
            calls=[Call(function="f", expected={1})],
            files={"../a": ""},
            cpu_seconds=0,
        )
    assert [line.partition(":")[0] for line in str(error.value).splitlines()] == [
        "cpu_seconds",
        "tests[0]",
        "files",
        "calls[0].expected",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, JSON)
@settings(max_examples=100)
def test_values_are_the_same_where_their_texts_are(one: object, other: object) -> None:
    assert same(one, one)
    assert not same(one, other) or one == other
    assert not same(one, [one])

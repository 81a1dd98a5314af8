"""What a verdict says of tests, calls and assertions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile_code import FALSE_ASSERTION, FORGERIES, IMPOSTORS, SHADOWS

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


@pytest.mark.parametrize(("code", "number"), [("3", 3), ("'0'", 1), ("-1", 255)])
def test_a_program_with_an_exit_code_fails(code: str, number: int) -> None:
    verdict = run(f"print(1)\nexit({code})", tests=[("", "1")])
    assert (verdict.outcome, verdict.passed, verdict.message) == ("exited", 0, f"called exit({number})")
    assert verdict.exit_code == number


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


@pytest.mark.parametrize("code", FORGERIES)
def test_code_cannot_make_an_assertion_hold(code: str) -> None:
    verdict = run(code, asserts=[FALSE_ASSERTION])
    assert (verdict.passed, verdict.total) == (0, 1)


@pytest.mark.parametrize(("code", "assertion"), IMPOSTORS)
def test_code_cannot_take_the_place_of_what_an_assertion_uses(code: str, assertion: str) -> None:
    assert run(SHADOWS + code, asserts=[assertion]).passed == 0


def test_a_name_that_an_assertion_makes_itself_is_not_the_codes() -> None:
    own = "import math\ndef near(f): return all(math.isclose(f(x), x) for x in (1, 2))\nassert near(same)"
    assert run("def same(x): return x\ndef near(f): return True", asserts=[own]).outcome == "passed"
    assert run("def same(x): return 0\ndef near(f): return True", asserts=[own]).passed == 0


def test_a_function_with_a_builtins_name_has_to_be_named() -> None:
    with pytest.raises(ValueError, match="they call no function of the code; name it in functions"):
        run("pass", asserts=["assert pow(2, 3) == 8"])
    wrong, right = "def pow(a, b): return 'wrong'", "def pow(a, b): return a ** b"
    assert [run(code, asserts=["assert pow(2, 3) == 8"], functions=["pow"]).passed for code in (wrong, right)] == [0, 1]


@pytest.mark.parametrize(
    "assertion",
    [
        "assert same((1, 2)) == (1, 2)",
        "assert same({1, (2, 3)}) == {1, (2, 3)}",
        "assert same({1: 'a', 'b': [None, True]}) == {1: 'a', 'b': [None, True]}",
        "assert same(float('inf')) > 10 ** 30",
        "assert same(b'a') == b'a'",
        "import math\nassert math.isclose(same(x=0.1 + 0.2), 0.3)",
    ],
)
def test_assertions_see_values_of_pythons_types(assertion: str) -> None:
    verdict = run("def same(x): return x", asserts=[assertion])
    assert verdict.outcome == "passed", verdict


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nprint('a note', file=sys.stderr)\nprint(1)",
        "if 1 is 1: print(1)",
        "import atexit\natexit.register(print, 1)",
        "out = open(1, 'w', closefd=False)\nout.write('1')",
        "import argparse\nargparse.ArgumentParser().parse_args()\nprint(1)",
        "import pickle\nclass A: pass\npickle.dumps(A())\nprint(1)",
        "from __future__ import annotations\nimport dataclasses as d\n@d.dataclass\nclass A:\n x: int\nprint(1)",
    ],
)
def test_a_program_runs_as_any_other(program: str) -> None:
    verdict = run(program, tests=[("", "1")])
    assert verdict.outcome == "passed", verdict


def test_a_program_reads_many_lines_as_bytes() -> None:
    code = "import sys\nprint(sum(int(line) for line in iter(sys.stdin.buffer.readline, b'')))"
    assert run(code, tests=[("1\n" * 100_000, "100000")]).outcome == "passed"


def test_a_number_that_json_makes_infinite_is_no_answer() -> None:
    code = """
import os, struct
def f():
    frame = b'{"value": 1e999}'
    for number in range(3, 64):
        try:
            os.write(number, struct.pack("!I", len(frame)) + frame)
        except OSError:
            pass
    return 1
"""
    assert run(code, asserts=["assert f() == 1"]).outcome == "exited"


def test_a_message_can_be_printed_and_encoded() -> None:
    verdict = run("def f(): raise ValueError('\\ud800\\x1b[2J')", calls=[Call(function="f", expected=1)])
    assert verdict.message.encode().isascii()
    assert verdict.message.isprintable()


def test_code_that_is_too_long_is_the_policys_fault() -> None:
    verdict = run("#" * (1 << 21), calls=[Call(function="f", expected=1)])
    assert (verdict.outcome, verdict.score) == ("raised", 0.0)


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
            asserts=["assert f( == 1"],
            functions=["Solution().f"],
            files={"../a": ""},
            cpu_seconds=0,
            memory_mib=64.0,  # type: ignore[arg-type]
        )
    assert [line.partition(":")[0] for line in str(error.value).splitlines()] == [
        "cpu_seconds",
        "memory_mib",
        "tests[0]",
        "asserts[0]",
        "functions",
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

from sandbox_cost.__main__ import among, measured
from sandbox_cost.snippets import HOSTILE


def test_a_small_run_has_every_figure_and_no_verdict_that_is_wrong() -> None:
    found = measured(snippets=20, rounds=2, calls=20)
    assert (
        found["with_hostile"]["neighbours_failed"] == found["with_hostile"]["forged"] == found["busy"]["changed"] == 0
    )
    assert found["verdict"]["p50_ms"] > 0
    assert found["plain_subprocess"]["p50_ms"] > 0
    assert all(
        way["samples_per_second"] > 0 and way["p50_ms"] > 0
        for ways in found["functions"].values()
        for way in ways.values()
    )


def test_each_kind_of_hostile_code_fails() -> None:
    found = among(snippets=10 * len(HOSTILE), hostile=True)
    assert (found["neighbours_failed"], found["forged"]) == (0, 0)

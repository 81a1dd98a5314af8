"""What the ratings of `make e2e-models` show: a check that is too kind would pass a group of two models."""

from typing import Any

import pytest

from two_models.findings import findings

TRUTH = {"a": {"0-0": 0.1, "0-1": 0.2}, "b": {"0-0": 1.1, "0-1": 1.2}}
MODEL_OF = {"one": "a", "two": "b"}


def group(*members: tuple[float | None, str | None]) -> dict[str, Any]:
    labels = ("0-0", "0-1")
    return {
        "group": 0,
        "members": [
            {"label": label, "score": score, "revision": revision, "problem": None if score is not None else "no one"}
            for label, (score, revision) in zip(labels, members, strict=True)
        ],
    }


@pytest.mark.parametrize(
    ("members", "split", "wrong", "unscored"),
    [
        ([(0.1, "one"), (0.2, "one")], 0, 0, 0),
        ([(1.1, "two"), (1.2, "two")], 0, 0, 0),
        ([(0.1, "one"), (1.2, "two")], 1, 0, 0),
        ([(0.1, "one"), (0.25, "one")], 0, 1, 0),
        ([(0.1, "two"), (0.2, "two")], 0, 2, 0),
        ([(0.1, "one"), (None, None)], 0, 0, 1),
        ([(0.1, None), (0.2, None)], 0, 2, 0),
        ([(0.1, "three"), (0.2, "three")], 0, 2, 0),
    ],
)
def test_each_fault_of_a_group_is_counted(members: list[Any], split: int, wrong: int, unscored: int) -> None:
    found = findings([group(*members)], TRUTH, MODEL_OF)
    assert (found.split, found.wrong, found.unscored) == (split, wrong, unscored)
    assert bool(found.problems) == bool(split or wrong or unscored)


def test_groups_are_counted_by_the_model_that_rated_them() -> None:
    groups = [group((0.1, "one"), (0.2, "one")), group((1.1, "two"), (1.2, "two")), group((0.1, "one"), (1.2, "two"))]
    assert findings(groups, TRUTH, MODEL_OF).of_model == {"a": 1, "b": 1}

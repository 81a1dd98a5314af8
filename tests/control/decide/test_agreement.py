"""A worker that scores the probe text differently from the others of its revision is kept from the routers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.decide_builders import a_pool, a_router, a_snapshot, a_worker

from rewardpool_control.decide import decide
from rewardpool_control.decide.agreement import Agreement, check_agreement
from rewardpool_control.decide.hold import kept_lists
from rewardpool_control.snapshot import Snapshot


def of(*scores: float | None, listed: str = "", dtype: str = "float32", model_type: str = "Discriminative") -> Snapshot:
    """Workers a, b, c … with these scores, the oldest first."""
    named = zip("abcdefgh", scores, strict=False)
    workers = [a_worker(name, age_seconds=900 - ord(name), probe_score=score) for name, score in named]
    pool = a_pool(
        model={"source": "hf://org/model", "type": model_type}, engine={"name": "vllm", "dtype": dtype}, replicas=2
    )
    router = a_router(workers=tuple(worker for worker in workers if worker.name in listed))
    return a_snapshot(*workers, routers=(router,), pool=pool)


@pytest.mark.parametrize(
    ("snapshot", "barred"),
    [
        pytest.param(of(1.0, 1.0005), "", id="within the tolerance"),
        pytest.param(of(1.0, 2.0, 1.0), "b", id="the majority stays"),
        pytest.param(of(2.0, 1.0, 1.0, listed="a"), "a", id="the majority stays against the one that serves"),
        pytest.param(of(1.0, 2.0, listed="b"), "a", id="of two, the one that serves stays"),
        pytest.param(of(1.0, 2.0), "b", id="of two that do not serve, the older stays"),
        pytest.param(of(1.0, 2.0, 3.0), "bc", id="of three that all differ, the oldest stays"),
        pytest.param(of(1.0, None, None), "", id="what is not known is not compared"),
        pytest.param(of(1.0, None, 2.0, listed="b"), "c", id="one without a score is not barred"),
        pytest.param(of(100.0, 100.09), "", id="the tolerance grows with the score"),
        pytest.param(of(1.0, 1.02, dtype="bfloat16"), "", id="bfloat16 is coarser"),
        pytest.param(of(1.0, 1.02, dtype="auto"), "", id="auto may be bfloat16"),
        pytest.param(of(1.0, 1.02, dtype="float16"), "b", id="float16 is finer"),
        pytest.param(of(1.0, 1.1, dtype="auto"), "b", id="a difference that no dtype explains"),
        pytest.param(of(1.0, 2.0, model_type="Generative"), "", id="judges are not compared"),
        pytest.param(of(-4.0, -4.1, model_type="Teacher"), "b", id="teachers are compared by the mean log-probability"),
    ],
)
def test_who_is_barred(snapshot: Snapshot, barred: str) -> None:
    assert check_agreement(snapshot).barred == set(barred)


def test_revisions_are_compared_each_for_itself() -> None:
    old, new = a_worker("a", revision="old", probe_score=1.0), a_worker("b", probe_score=2.0)
    assert check_agreement(a_snapshot(old, new)) == Agreement()


@pytest.mark.parametrize("change", [{"answering": False}, {"deleting": True}, {"disruption_target": "evicted"}])
def test_a_worker_that_does_not_serve_bars_no_other(change: dict[str, object]) -> None:
    away = replace(a_worker("a", probe_score=1.0), **change)  # type: ignore[arg-type]
    assert check_agreement(a_snapshot(away, a_worker("b", probe_score=2.0))) == Agreement()


def test_a_parked_worker_bars_no_other() -> None:
    assert check_agreement(of(1.0, 2.0), apart={"a"}) == Agreement()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.none(), min_size=1, max_size=8), st.data())
def test_at_least_one_worker_is_left_and_a_second_look_agrees(scores: list[float | None], data: st.DataObject) -> None:
    listed = data.draw(st.text(alphabet="abcdefgh", max_size=8))
    barred = check_agreement(of(*scores, listed=listed)).barred
    names = set("abcdefgh"[: len(scores)])
    assert barred < names
    assert check_agreement(of(*scores, listed="".join(names - barred))).barred == barred


def test_the_differing_worker_joins_no_router_and_the_condition_has_the_numbers() -> None:
    plan = decide(of(1.0, 2.0, listed="a"))
    assert (plan.joins, plan.leaves) == ((), ())
    condition = plan.status.condition("Degraded")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "ReplicasDisagree")
    assert condition.message == (
        "worker b is kept from the routers: it scores the probe text 2, and a of the same revision 1;"
        " they may differ by 0.002. Delete it to have it started anew"
    )


def test_the_differing_worker_leaves_the_routers_that_have_it() -> None:
    plan = decide(of(1.0, 1.0, 2.0, listed="abc"))
    assert [leave.worker_url for leave in plan.leaves] == ["http://c:8000"]


def test_while_nothing_else_can_be_decided_the_differing_worker_is_kept_out() -> None:
    assert kept_lists(of(1.0, 2.0, listed="a")).joins == ()

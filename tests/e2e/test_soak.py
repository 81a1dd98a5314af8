"""The soak's own rules: the plan follows from the seed, and no sample can go missing without being counted."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.breaking import container_in
from cluster.fault_proxy import Rule, resource_of
from faults.reward import expected_score, text_hash
from faults.traffic import BEGAN, ENDED, SAMPLES
from soak.changes import CHANGING
from soak.faults import DOING
from soak.journals import read_lives, read_scored, read_traffic, revision_of
from soak.ledger import Answered, Asked, Verdict, judge
from soak.plan import CHANGES, KINDS, ROUND_SECONDS, make_plan
from soak.report import Happened, Timed, longest_stall, recovery_seconds, report, shortcomings
from soak.watch import MIB, WARM_SECONDS, Memory

SEEDS = st.integers(min_value=0, max_value=2**31)


@given(seed=SEEDS)
def test_a_seed_gives_the_same_plan_each_time_and_a_longer_one_begins_with_it(seed: int) -> None:
    plan = make_plan(seed, seconds=60)
    assert plan == make_plan(seed, seconds=60) == make_plan(seed, seconds=120)[: len(plan)]


def test_another_seed_gives_another_plan() -> None:
    assert make_plan(1, seconds=60) != make_plan(2, seconds=60)


@given(seed=SEEDS)
def test_ten_minutes_have_sixty_faults_of_every_kind(seed: int) -> None:
    kinds = Counter(fault.kind for round_ in make_plan(seed, seconds=600) for fault in round_.faults)
    assert kinds.total() >= 60
    assert set(kinds) == set(KINDS)


@given(seed=SEEDS)
def test_what_lasts_is_over_before_the_next_round_and_two_at_a_time_are_of_two_kinds(seed: int) -> None:
    for round_ in make_plan(seed, seconds=600):
        kinds = [fault.kind for fault in round_.faults]
        assert 1 <= len(kinds) == len(set(kinds)) <= 2
        assert all(fault.seconds < ROUND_SECONDS - 2 for fault in round_.faults)


def test_every_kind_and_every_change_can_be_done() -> None:
    assert set(KINDS) == set(DOING)
    assert set(CHANGES) == set(CHANGING)


TEXT = text_hash("a text")


def asked(name: str = "one", *, life: str = "life") -> Asked:
    return Asked(life=life, id=name, text=TEXT)


def answered(name: str = "one", *, life: str = "life", score: float | None = 0.5, given_up: bool = False) -> Answered:
    return Answered(life=life, id=name, score=score, attempts=1, given_up=given_up)


def verdict(questions: list[Asked], answers: list[Answered], *, scored: bool = True) -> Verdict:
    scored_by = {TEXT: ["r1"]} if scored else {}
    return judge(questions, answers, scored_by=scored_by, direct=lambda text: 0.5)[1]


def test_a_sample_with_its_own_score_is_in_the_ledger_and_no_problem() -> None:
    entries, found = judge([asked()], [answered()], scored_by={TEXT: ["r2", "r1", "r2"]}, direct=lambda text: 0.5)
    assert found == Verdict(samples=1)
    assert found.is_clean
    assert [(entry.id, entry.text, entry.score, entry.revisions) for entry in entries] == [
        ("one", TEXT, 0.5, ("r1", "r2"))
    ]


@pytest.mark.parametrize(
    ("questions", "answers", "counts"),
    [
        pytest.param([asked()], [], (1, 0, 0, 0), id="no answer"),
        pytest.param([asked()], [answered(score=None)], (1, 0, 0, 0), id="an error"),
        pytest.param([asked()], [answered(score=0.4)], (0, 1, 0, 0), id="another score"),
        pytest.param([asked()], [answered(), answered()], (0, 0, 1, 0), id="twice"),
        pytest.param([asked()], [answered(), answered("two")], (0, 0, 0, 1), id="never asked"),
        pytest.param([asked()], [answered(given_up=True, score=None)], (0, 0, 0, 0), id="given up"),
        pytest.param(
            [asked(life="1"), asked(life="2")], [answered(life="2")], (0, 0, 0, 0), id="asked again after a kill"
        ),
        pytest.param(
            [asked(life="1"), asked(life="2")],
            [answered(life="1"), answered(life="2")],
            (0, 0, 0, 0),
            id="answered in both lives",
        ),
        pytest.param([asked(life="1"), asked(life="2")], [], (1, 0, 0, 0), id="in no life"),
        pytest.param(
            [asked(life="1"), asked(life="2")],
            [answered(life="1", given_up=True, score=None)],
            (1, 0, 0, 0),
            id="given up, asked again, and not answered",
        ),
        pytest.param(
            [asked(life="1"), asked(life="2")],
            [answered(life="1", score=None), answered(life="2")],
            (1, 0, 0, 0),
            id="an error that a later life hides",
        ),
    ],
)
def test_what_is_not_right_is_counted(
    questions: list[Asked], answers: list[Answered], counts: tuple[int, int, int, int]
) -> None:
    found = verdict(questions, answers)
    assert (found.lost, found.wrong, found.duplicated, found.invented) == counts
    assert found.is_clean == (not any(counts)) == (not found.problems)


def test_a_score_that_no_worker_gave_is_invented() -> None:
    assert verdict([asked()], [answered()], scored=False).invented == 1


def test_traffic_that_was_due_and_has_no_answer_is_asked_all_the_same(tmp_path: Path) -> None:
    (tmp_path / BEGAN).write_text(json.dumps({"began": 100.0, "rate": 2.0}))
    line = {"index": 1, "seconds": 0.25, "attempts": 1, "score": 0.5, "problem": None}
    (tmp_path / SAMPLES).write_text(json.dumps(line) + "\n" + '{"index": 0, "sec')
    journal = read_traffic(tmp_path, until=101.5)
    assert [question.id for question in journal.asked] == ["sample 0", "sample 1", "sample 2"]
    assert [answer.id for answer in journal.answers] == ["sample 1"]
    assert journal.timed == [Timed(due=100.5, answered=100.75)]


def test_a_sample_that_was_due_as_the_traffic_ended_and_never_asked_for_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / BEGAN).write_text(json.dumps({"began": 100.0, "rate": 2.0}))
    (tmp_path / SAMPLES).write_text("")
    (tmp_path / ENDED).write_text(json.dumps({"asked": 2}))
    assert [question.id for question in read_traffic(tmp_path, until=101.5).asked] == ["sample 0", "sample 1"]


def test_a_killed_life_and_its_successor_are_read_in_their_order(tmp_path: Path) -> None:
    later = {"at": 3.0, "answered": "one", "score": 0.5, "attempts": 2, "given_up": False, "error": None}
    question = json.dumps({"at": 1.0, "asked": "one", "text": "a text"}) + "\n"
    (tmp_path / "rank-1-100.jsonl").write_text(question + '{"at": 2.0, "answ')
    (tmp_path / "rank-0-200.jsonl").write_text(question + json.dumps(later) + "\n")
    journal = read_lives(tmp_path)
    assert [question.life for question in journal.asked] == ["rank-1-100", "rank-0-200"]
    assert journal.timed == [Timed(due=1.0, answered=3.0)]
    assert journal.texts == {TEXT: "a text"}


def test_workers_notes_tell_the_revision(tmp_path: Path) -> None:
    assert revision_of("faults-worker-3f2a9c-7d9f8b6c5-x2x4z.7") == "3f2a9c"
    (tmp_path / "faults-worker-r1-7d9f8b6c5-x2x4z.7").write_text(f"{TEXT}\n")
    assert read_scored(tmp_path) == {TEXT: ["r1"]}


def test_the_direct_score_is_that_of_the_function() -> None:
    assert int(TEXT[:12], 16) / 2**47 - 1.0 == expected_score("a text")


def test_a_fault_is_over_when_a_second_passed_without_a_slow_sample() -> None:
    slow = [Timed(due=10.0 + number / 2, answered=14.0) for number in range(4)]
    later = Timed(due=20.0, answered=25.0)
    kill = Happened(kind="kill", began=10.0, ended=10.0)
    change = Happened(kind="scale", began=10.0, ended=10.0, is_change=True)
    assert recovery_seconds([kill, change], [*slow, later]) == {"kill": {"median": 1.5, "max": 1.5}}


def test_a_stall_is_the_time_in_which_somebody_waits_and_nobody_is_answered() -> None:
    idle_between = [Timed(due=0.0, answered=1.0), Timed(due=50.0, answered=51.5)]
    assert longest_stall(idle_between) == 1.5
    silence = [Timed(due=0.0, answered=0.1), Timed(due=1.0, answered=9.0), Timed(due=2.0, answered=9.0)]
    assert longest_stall(silence) == 8.0


def test_the_report_has_these_fields_and_says_what_is_missing() -> None:
    kill = Happened(kind="kill", began=0.0, ended=0.0)
    made = report(
        minutes=1.0,
        seed=7,
        happened=[kill],
        samples=[],
        verdict=Verdict(samples=3, lost=1),
        rss_growth_mb={"router": 2.0},
    )
    assert list(made) == [
        "minutes", "seed", "faults", "samples", "lost", "wrong", "duplicated", "invented",
        "longest_stall_seconds", "recovery_seconds", "rss_growth_mb",
    ]  # fmt: skip
    assert shortcomings(made) == ["1 samples lost", "only 1 faults, not 6"]
    assert shortcomings({**made, "lost": 0, "faults": {"kill": 6}}) == []


def test_the_memory_of_a_start_is_no_growth() -> None:
    memory = Memory()
    for at, size in ((0.0, 10), (WARM_SECONDS, 50), (60.0, 53)):
        memory.see("router", "one life", size * MIB, at=at)
    memory.see("router", "another", 90 * MIB, at=0.0)
    assert memory.growth_mb() == {"router": 3.0}


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/namespaces/rl/secrets/a-key", "secrets"),
        ("/apis/rewardpool.dev/v1alpha1/rewardpools", "rewardpools"),
        ("/apis/apps/v1/namespaces/rl/deployments/x/scale", "deployments"),
        ("/api/v1/namespaces/rl", "namespaces"),
        ("/healthz", ""),
    ],
)
def test_a_request_is_about_a_kind(path: str, resource: str) -> None:
    assert resource_of(path) == resource
    assert Rule(status=403).is_about(path)
    assert Rule(status=403, resources=frozenset({resource or "secrets"})).is_about(path) == bool(resource)


def test_a_container_is_known_by_its_control_group() -> None:
    container = "f" * 64
    assert container_in(f"4:memory:/k8s.io/{container}\n1:cpu:/k8s.io/{container}\n") == container
    assert container_in("4:memory:/system.slice/cron.service\n") is None

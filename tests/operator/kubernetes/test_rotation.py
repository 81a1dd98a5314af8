"""The steps of a key rotation, as tables; and that no order of events breaks its promises."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_api.status import KeyRotation
from rewardpool_control.decide.events import key_events
from rewardpool_operator.kubernetes.credentials.keys import Keys
from rewardpool_operator.kubernetes.credentials.rotation import (
    GRACE,
    OVERDUE,
    RotationProgress,
    RotationStep,
    next_step,
    progress_of,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
A, B, C = ("a" * 20, "b" * 20, "c" * 20)
SETTLED = Keys(pool=A, in_force=A, admin="admin", handled="1")
PREPARING = replace(SETTLED, next=B, handled="2", step_since=NOW)
CHANGING = replace(
    SETTLED, pool=B, previous=A, in_force=B, admin="new", previous_admin="admin", handled="2", step_since=NOW
)
LATER = NOW + GRACE


def step(keys: Keys, *, asked: str | None = "2", now: datetime = NOW, **progress: Any) -> RotationStep:
    return next_step(keys, RotationProgress(**progress), asked=asked, now=now, new_key=lambda: "new")


@pytest.mark.parametrize("asked", [None, "", "1"])
def test_keys_that_nobody_asks_to_change_stay(asked: str | None) -> None:
    assert step(SETTLED, asked=asked) == RotationStep(keys=SETTLED)


def test_a_new_value_of_the_annotation_makes_a_next_key_for_workers_to_learn() -> None:
    assert step(SETTLED).keys == replace(PREPARING, next="new")


def test_a_next_key_that_somebody_wrote_is_taken() -> None:
    begun = step(replace(SETTLED, next=B)).keys
    assert begun == PREPARING
    assert step(begun).keys.pool == B


def test_the_key_stays_while_a_worker_does_not_take_the_next_one() -> None:
    assert step(PREPARING, refusing=("w1",)).keys == PREPARING
    assert step(PREPARING, refusing=("w1",), now=NOW + 9 * OVERDUE).keys == PREPARING


def test_the_keys_change_when_every_worker_takes_the_next_one() -> None:
    assert step(PREPARING).keys == CHANGING


def test_an_operator_that_died_between_its_two_writes_finishes_the_change() -> None:
    half = replace(PREPARING, pool=B, previous=A, next=None)
    assert step(half).keys == CHANGING


@pytest.mark.parametrize(
    ("progress", "now"), [({"outdated": ("r1",)}, NOW + 2 * GRACE), ({}, LATER - timedelta(seconds=1))]
)
def test_the_previous_keys_stay_while_a_router_has_them_and_for_a_while(progress: Any, now: datetime) -> None:
    assert step(CHANGING, now=now, **progress).keys == CHANGING


def test_the_previous_keys_go_when_no_router_has_them() -> None:
    assert step(CHANGING, now=LATER).keys == Keys(pool=B, in_force=B, admin="new", handled="2")


def test_a_request_during_a_change_is_obeyed_after_it() -> None:
    assert step(CHANGING, asked="3").keys == CHANGING
    after = step(CHANGING, asked="3", now=LATER).keys
    assert step(after, asked="3").keys.next == "new"


def test_a_key_edited_by_hand_becomes_the_next_one() -> None:
    edited = step(replace(SETTLED, pool=B), asked="1").keys
    assert edited == replace(SETTLED, next=B, step_since=NOW)


def test_an_edit_during_the_preparation_replaces_the_next_key() -> None:
    assert step(replace(PREPARING, pool=C)).keys == replace(PREPARING, next=C)


def test_an_edit_during_a_change_waits_for_its_end() -> None:
    edited = step(replace(CHANGING, pool=C)).keys
    assert edited == replace(CHANGING, next=C)
    finished = step(edited, now=LATER).keys
    assert (finished.pool, finished.next, finished.previous) == (B, C, None)


@pytest.mark.parametrize("wrong", ["short", "with a space in it", "e" * 600, "nicht-ascii-ä-aber-lang"])
def test_what_cannot_be_a_key_is_taken_back_with_the_reason(wrong: str) -> None:
    for edited in (replace(SETTLED, pool=wrong), replace(SETTLED, next=wrong)):
        back = step(edited, asked="1")
        assert back.keys == SETTLED
        assert "16 to 512" in (back.refused or "")
        assert wrong not in (back.refused or "")


def test_a_next_key_that_is_the_key_is_nothing() -> None:
    assert step(replace(SETTLED, next=A), asked="1").keys == SETTLED


def test_taking_the_next_key_away_ends_the_rotation() -> None:
    assert step(replace(PREPARING, next=None)).keys == replace(SETTLED, handled="2")


def test_a_pool_without_a_key_changes_the_one_of_its_worker_lists() -> None:
    keys = Keys(admin="admin")
    changing = step(keys).keys
    assert changing == Keys(admin="new", previous_admin="admin", handled="2", step_since=NOW)
    assert step(changing, now=LATER).keys == Keys(admin="new", handled="2")


# What people are told.


def rotation(phase: Any, message: str = "") -> KeyRotation:
    return KeyRotation(phase=phase, since="2026-01-01T12:00:00.000000Z", request="2", message=message)


@pytest.mark.parametrize(
    ("keys", "before", "phase"),
    [
        (SETTLED, None, None),
        (PREPARING, None, "Preparing"),
        (CHANGING, rotation("Preparing"), "Changing"),
        (SETTLED, rotation("Changing"), "Done"),
        (SETTLED, rotation("Done"), "Done"),
    ],
)
def test_the_status_has_the_phase(keys: Keys, before: KeyRotation | None, phase: str | None) -> None:
    said = progress_of(keys, RotationProgress(), before, now=NOW)
    assert (said.phase if said else None) == phase


def test_a_wait_that_takes_too_long_names_whom_it_waits_for_once() -> None:
    overdue = progress_of(PREPARING, RotationProgress(refusing=("w1", "w2")), rotation("Preparing"), now=NOW + OVERDUE)
    assert overdue is not None
    assert overdue.message == "for 10 minutes workers do not take the next key: w1, w2"
    (event,) = key_events(rotation("Preparing"), overdue)
    assert (event.type, event.reason) == ("Warning", "KeyRotationWaits")
    again = progress_of(PREPARING, RotationProgress(refusing=("w1",)), overdue, now=NOW + 2 * OVERDUE)
    assert again == overdue
    assert key_events(overdue, again) == ()


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        (None, None, []),
        (None, rotation("Preparing"), ["KeyRotationStarted"]),
        (rotation("Done"), rotation("Changing"), ["KeyRotationStarted"]),
        (rotation("Preparing"), rotation("Changing"), []),
        (rotation("Changing"), rotation("Done"), ["KeyRotated"]),
        (rotation("Preparing"), rotation("Done", "taken away"), []),
        (rotation("Done"), rotation("Done"), []),
    ],
)
def test_beginning_and_end_are_told_once(before: Any, after: Any, reasons: list[str]) -> None:
    assert [event.reason for event in key_events(before, after)] == reasons


# Whatever happens in whatever order.

EDITS: dict[str, Callable[[Keys], Keys]] = {
    "key edited": lambda keys: replace(keys, pool=C),
    "next key written": lambda keys: replace(keys, next=C),
    "next key removed": lambda keys: replace(keys, next=None),
    "nothing": lambda keys: keys,
}


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(EDITS)), st.booleans(), st.booleans(), st.sampled_from([None, "1", "2", "3"]))
    )
)
def test_trainers_are_never_told_a_key_that_a_worker_may_not_know(
    story: list[tuple[str, bool, bool, str | None]],
) -> None:
    keys, now, made = SETTLED, NOW, count()
    for edit, workers_know, routers_new, asked in story:
        before = EDITS[edit](keys)
        progress = RotationProgress(refusing=() if workers_know else ("w",), outdated=() if routers_new else ("r",))
        now += timedelta(seconds=20)
        keys = next_step(before, progress, asked=asked, now=now, new_key=lambda: f"generated-key-{next(made)}").keys
        assert keys.pool == keys.in_force
        if keys.pool != before.in_force:
            # The key in force changes only to one that all workers were seen to take, and the old one stays valid.
            assert workers_know
            assert (keys.pool, keys.previous) == (before.next, before.in_force)
        elif before.previous is not None and keys.previous is None:
            assert routers_new


@given(st.sampled_from([SETTLED, PREPARING, CHANGING]), st.sampled_from(["1", "2"]))
def test_every_rotation_ends_once_workers_and_routers_are_there(keys: Keys, asked: str) -> None:
    now = NOW
    for _ in range(8):
        now += GRACE
        keys = step(keys, asked=asked, now=now).keys
    assert (keys.next, keys.previous, keys.previous_admin, keys.step_since) == (None, None, None, None)

"""Where the keys come from."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from rewardpool_api import names
from rewardpool_operator.kubernetes.credentials.keys import (
    ANNOTATION_STEP_SINCE,
    KEY_COPY,
    Keys,
    entry,
    found_keys,
    gateway_key,
)

REMEMBERED = Keys(
    pool="remembered",
    next="next",
    previous="previous",
    in_force="remembered",
    admin="remembered too",
    previous_admin="before",
    handled="1",
    step_since=datetime(2026, 1, 1, tzinfo=UTC),
)


def a_secret(annotations: dict[str, str] | None = None, **entries: str) -> dict[str, Any]:
    data = {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}
    return {"metadata": {"annotations": annotations or {}}, "data": data}


ADMIN = a_secret(**{"key": "admin", KEY_COPY: "copy"})


def found(
    key_secret: dict[str, Any] | None, admin_secret: dict[str, Any] | None, remembered: Keys | None, **said: Any
) -> Keys:
    return found_keys(key_secret, admin_secret, remembered, **{"asked": None, "uses_key": True, **said})


def test_what_the_secrets_say_holds() -> None:
    key = a_secret(**{"key": "live", names.NEXT_KEY: "n", names.PREVIOUS_KEY: "p"})
    since = "2026-01-01T12:00:00.000000Z"
    said = {names.ANNOTATION_ROTATE_KEY: "2", ANNOTATION_STEP_SINCE: since}
    admin = a_secret(said, **{"key": "admin", KEY_COPY: "copy", names.PREVIOUS_KEY: "admin before"})
    assert found(key, admin, REMEMBERED) == Keys(
        pool="live",
        next="n",
        previous="p",
        in_force="copy",
        admin="admin",
        previous_admin="admin before",
        handled="2",
        step_since=datetime(2026, 1, 1, 12, tzinfo=UTC),
    )


def test_deleted_secrets_come_back_with_what_they_had() -> None:
    assert found(None, None, REMEMBERED) == REMEMBERED


def test_an_operator_that_was_away_restores_the_key_from_its_copy() -> None:
    keys = found(None, ADMIN, None)
    assert (keys.pool, keys.in_force, keys.admin) == ("copy", "copy", "admin")


def test_a_key_that_was_edited_is_told_from_the_one_in_force() -> None:
    keys = found(a_secret(key="edited"), ADMIN, None)
    assert (keys.pool, keys.in_force) == ("edited", "copy")


def test_a_key_that_somebody_made_before_the_pool_is_taken() -> None:
    keys = found(a_secret(key="theirs"), None, None)
    assert (keys.pool, keys.in_force) == ("theirs", "theirs")


def test_new_keys_are_made_where_there_are_none() -> None:
    first, second = found(None, None, None), found(None, None, None)
    assert len({first.pool, first.admin, second.pool, second.admin}) == 4
    assert len(first.pool) >= 43


def test_a_new_pool_has_obeyed_what_it_was_made_with() -> None:
    assert found(None, None, None, asked="7").handled == "7"


def test_what_was_obeyed_is_known_without_the_secret_that_says_it() -> None:
    assert found(a_secret(key="live"), None, None, asked="8", handled="7").handled == "7"


def test_a_pool_without_a_key_has_none_that_could_change() -> None:
    keys = found(None, a_secret(key="admin"), None, uses_key=False)
    assert keys == Keys(admin="admin")
    assert keys.fingerprint == found(None, a_secret(key="admin"), None, uses_key=False).fingerprint


def test_an_empty_or_broken_entry_is_none() -> None:
    assert entry({"data": {"key": ""}}, "key") is None
    assert entry({"data": {"key": "not base64!"}}, "key") is None


def test_the_gateways_key_is_what_its_secret_says_and_comes_back_with_it() -> None:
    before = Keys(admin="a", gateway="k" * 16)
    assert gateway_key(a_secret(key="n" * 16), before) == "n" * 16
    assert gateway_key(None, before) == "k" * 16


@pytest.mark.parametrize("unusable", ["short", "with a space in it", "\xfc" * 16])
def test_a_gateways_key_that_no_header_takes_is_put_back(unusable: str) -> None:
    assert gateway_key(a_secret(key=unusable), Keys(admin="a", gateway="k" * 16)) == "k" * 16


def test_keys_are_not_shown() -> None:
    assert "remembered" not in repr(REMEMBERED)

"""Where the keys come from."""

import base64
from typing import Any

from rewardpool_operator.kubernetes.keys import entry, settled_keys
from rewardpool_operator.kubernetes.render import KEY_COPY, Keys

REMEMBERED = Keys(pool="remembered", admin="remembered too")


def a_secret(**entries: str) -> dict[str, Any]:
    return {"data": {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}}


ADMIN = a_secret(**{"key": "admin", KEY_COPY: "copy"})


def test_what_the_secrets_say_holds() -> None:
    assert settled_keys(a_secret(key="live"), ADMIN, REMEMBERED) == Keys(pool="live", admin="admin")


def test_a_deleted_secret_comes_back_with_the_key_it_had() -> None:
    assert settled_keys(None, None, REMEMBERED) == REMEMBERED


def test_an_operator_that_was_away_restores_the_key_from_its_copy() -> None:
    assert settled_keys(None, ADMIN, None) == Keys(pool="copy", admin="admin")


def test_new_keys_are_made_where_there_are_none() -> None:
    first, second = settled_keys(None, None, None), settled_keys(None, None, None)
    assert len({first.pool, first.admin, second.pool, second.admin}) == 4
    assert len(first.pool) >= 43


def test_an_empty_or_broken_entry_is_none() -> None:
    assert entry({"data": {"key": ""}}, "key") is None
    assert entry({"data": {"key": "not base64!"}}, "key") is None

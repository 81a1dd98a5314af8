"""The limit of open files: enough, raised, or said."""

import resource

import pytest

from rewardpool._client.connections import open_files
from rewardpool.errors import ConfigError

NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "after"),
    [
        pytest.param((4096, 4096), (4096, 4096), id="enough"),
        pytest.param((NO_LIMIT, NO_LIMIT), (NO_LIMIT, NO_LIMIT), id="no limit"),
        pytest.param((1024, 8192), (2048, 8192), id="raised"),
        pytest.param((1024, NO_LIMIT), (2048, NO_LIMIT), id="raised without an upper limit"),
    ],
)
def test_a_process_gets_the_open_files_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], after: tuple[int, int]
) -> None:
    found = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: found.append(wanted))
    open_files.ensure_limit(1024, hedge=True)
    assert found[-1] == after


def test_a_limit_that_cannot_be_raised_is_said_with_the_number_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(ConfigError, match=r"concurrency: 16384 requests .* 25088 open files, .* may have 4096"):
        open_files.ensure_limit(16_384, hedge=True)


def test_without_hedges_fewer_are_needed_and_the_message_says_so_where_that_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20_000, 20_000))
    with pytest.raises(ConfigError, match=r"set `hedge: false`, or raise the limit"):
        open_files.ensure_limit(16_384, hedge=True)
    open_files.ensure_limit(16_384, hedge=False)


@pytest.mark.parametrize(
    ("limits", "after"),
    [
        pytest.param((NO_LIMIT, NO_LIMIT), (NO_LIMIT, NO_LIMIT), id="no limit"),
        pytest.param((256, 8192), (556, 8192), id="raised"),
        pytest.param((256, 512), (512, 512), id="raised as far as it may be"),
        pytest.param((256, NO_LIMIT), (556, NO_LIMIT), id="raised without an upper limit"),
    ],
)
def test_a_process_may_be_allowed_more_than_now(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], after: tuple[int, int]
) -> None:
    found = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: found.append(wanted))
    open_files.raise_limit(300)
    assert found[-1] == after

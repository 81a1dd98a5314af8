"""The lines by which a worker tells which requests it has."""

from rewardpool_worker.in_work import RequestsInWork


def listed(in_work: RequestsInWork) -> list[str]:
    return [line for line in in_work.exposition().decode().splitlines() if not line.startswith("#")]


def test_a_request_has_a_line_until_it_is_answered_with_the_seconds_since_its_last_call_got_a_place() -> None:
    now = 10.0
    in_work = RequestsInWork(clock=lambda: now)
    with in_work.request("a-1-7", calls=2) as work:
        work.started()
        now = 12.0
        assert listed(in_work) == ['rewardpool_request_seconds{request="a-1-7"} 0.000']
        work.started()
        now = 15.5
        assert listed(in_work) == ['rewardpool_request_seconds{request="a-1-7"} 3.500']
    assert in_work.exposition() == b""


def test_an_id_that_no_trainer_made_has_no_line() -> None:
    in_work = RequestsInWork()
    with in_work.request('a"} 1\n', calls=1), in_work.request("", calls=1):
        assert listed(in_work) == []

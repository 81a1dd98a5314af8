"""Who may have a connection made, and who waits in vain."""

from rewardpool._client.connections.connect import AT_A_TIME, CONNECT_SECONDS, Turns


def test_so_many_have_a_turn_at_a_time_and_the_others_in_their_order() -> None:
    turns: Turns[int] = Turns()
    assert [turns.acquire(one, now=0.0) for one in range(AT_A_TIME + 2)] == [True] * AT_A_TIME + [False] * 2
    assert turns.release(connected=True, now=1.0) == []
    assert turns.are_free
    assert [turns.next(), turns.next(), turns.next()] == [AT_A_TIME, AT_A_TIME + 1, None]


def waiting() -> Turns[str]:
    turns: Turns[str] = Turns()
    for number in range(AT_A_TIME):
        turns.acquire(str(number), now=0.0)
    turns.acquire("early", now=0.0)
    turns.acquire("late", now=3.0)
    return turns


def test_silence_ends_the_wait_of_those_that_waited_through_it() -> None:
    assert waiting().release(connected=False, now=CONNECT_SECONDS) == ["early"]


def test_a_refusal_ends_no_wait() -> None:
    assert waiting().release(connected=False, now=0.1) == []


def test_who_waits_while_connections_are_made_waits_on() -> None:
    turns = waiting()
    turns.release(connected=True, now=CONNECT_SECONDS - 0.1)
    assert turns.release(connected=False, now=CONNECT_SECONDS) == []

"""What happens when, as a pure function of the seed: the same seed is the same plan, on whatever machine."""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

LARGEST_SEED: Final = 2**31
ROUND_SECONDS: Final = 9.0
"""From one round to the next one. What lasts is over before that, with the time that it takes to begin and to undo."""
TWO_AT_A_TIME: Final = 0.4
"""Share of the rounds with two faults."""
ROUNDS_PER_CHANGE: Final = 4

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Lasting:
    """How long a kind of fault lasts, and what it may be about.

    Attributes:
        seconds: From the shortest to the longest; of what is over at once, both are 0.
        about: Of which one is drawn; empty where there is no choice.
    """

    seconds: tuple[float, float] = (0.0, 0.0)
    about: tuple[str, ...] = ()


_SHORT: Final = Lasting(seconds=(2.0, 5.0))
KINDS: Final[Mapping[str, Lasting]] = {
    "worker killed": Lasting(),
    "router killed": Lasting(),
    "operator killed": Lasting(),
    "worker stopped": _SHORT,
    "router stopped": _SHORT,
    "operator stopped": _SHORT,
    "worker's packets dropped": _SHORT,
    "router's packets dropped": _SHORT,
    "node's disk full": _SHORT,
    "etcd full": _SHORT,
    "API server slow": _SHORT,
    "API server says 403": Lasting(seconds=(2.0, 5.0), about=("secrets", "deployments", "services", "pods")),
    "API server says 429": Lasting(seconds=(2.0, 5.0), about=("secrets", "leases", "deployments", "")),
    "API server says 500": Lasting(seconds=(2.0, 5.0), about=("secrets", "pods", "rewardpools", "")),
    "etcd restarted": Lasting(),
    "kubelet restarted": Lasting(),
    "containerd restarted": Lasting(),
    "new addresses": Lasting(),
    "quota lowered": _SHORT,
    "trainer's rank killed": Lasting(),
}
"""Every kind of fault."""

CHANGES: Final = ("rollout", "key rotation", "scale", "routers rolled", "operator upgrade")
"""What a user does meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        kind: One of `KINDS`.
        target: Decides whom it befalls: the one with this number, counted around, of those that are there then.
        seconds: How long it lasts; 0.0 for what is over at once.
        about: One of the kind's, or empty.
    """

    kind: str
    target: int
    seconds: float
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Round:
    """What happens together.

    Attributes:
        at: Seconds since the beginning of the soak.
        faults: One or two of different kinds.
        change: One of `CHANGES`, made just before; or None.
    """

    at: float
    faults: tuple[Fault, ...]
    change: str | None = None


def make_plan(seed: int, *, seconds: float) -> tuple[Round, ...]:
    """The rounds of a soak that lasts so long; a longer one begins as a shorter one of the same seed does.

    All kinds come in turn, in an order that the seed decides, so that none is missing from twenty faults in a row.
    """
    chance = random.Random(seed)
    kinds, changes = _in_turn(KINDS, chance), _in_turn(CHANGES, chance)
    rounds = []
    for number in range(int(seconds / ROUND_SECONDS)):
        faults = [_draw(next(kinds), chance)]
        if chance.random() < TWO_AT_A_TIME:
            # Where one bag ends and the next begins, the same kind may come twice in a row.
            faults.append(_draw(next(kind for kind in kinds if kind != faults[0].kind), chance))
        change = next(changes) if number % ROUNDS_PER_CHANGE == ROUNDS_PER_CHANGE - 1 else None
        rounds.append(Round(at=number * ROUND_SECONDS, faults=tuple(faults), change=change))
    return tuple(rounds)


def _draw(kind: str, chance: random.Random) -> Fault:
    lasting = KINDS[kind]
    about = chance.choice(lasting.about) if lasting.about else ""
    seconds = round(chance.uniform(*lasting.seconds), 1)
    return Fault(kind=kind, target=chance.randrange(1000), seconds=seconds, about=about)


def _in_turn(items: Iterable[T], chance: random.Random) -> Iterator[T]:
    """All items in a random order, then all in another one, without end."""
    bag = list(items)
    while True:
        chance.shuffle(bag)
        yield from bag

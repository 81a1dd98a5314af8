"""One group, one scorer: no group is rated by two revisions of a pool. Pure.

During a rollout workers of two revisions answer, and scores of two models have no common scale: an advantage made of
both is one that no model gave. So the members that another revision scored are asked again, of the one that most of the
group has; where that one serves no more, of the one that serves in its place, and then all of them.

Where a trainer was given ratings that it does not give back, nothing of them can be asked again. There the first member
decides, and the later ones are asked of its revision: `Claims`.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

# Times that a group is asked again, at most: twice in a rollout that ends meanwhile, twice more where it is undone.
ROUNDS: Final = 4


@dataclass(frozen=True)
class Answered:
    """Revisions that answered for one member of a group, by the name of their pool."""

    seen: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # Pools whose wanted revision serves no more -> the revision that refused in its place.
    gone: Mapping[str, str | None] = field(default_factory=dict)

    def agrees(self, wanted: Mapping[str, str]) -> bool:
        """Return whether nothing but the wanted revisions answered."""
        return not self.gone and all(self.seen.get(pool, {revision}) == {revision} for pool, revision in wanted.items())


def differ(revisions: Iterable[Mapping[str, Collection[str]]]) -> bool:
    """Return whether two revisions of a pool are among them; each is by the name of its pool."""
    first: dict[str, str] = {}
    return any(
        first.setdefault(pool, revision) != revision
        for one in revisions
        for pool, seen in one.items()
        for revision in seen
    )


def is_split(members: Sequence[Answered]) -> bool:
    """Return whether several revisions of a pool scored the group, or the wanted one serves no more."""
    return any(member.gone for member in members) or differ(member.seen for member in members)


def wanted_of(members: Sequence[Answered]) -> dict[str, str]:
    """Return the one revision that each pool shall score with: that of most members, or what serves in its place.

    Pools whose answers agree are among them, so that asking again leaves them as they are.
    """
    wanted: dict[str, str] = {}
    for pool in sorted({pool for member in members for pool in (*member.seen, *member.gone)}):
        counts = Counter(revision for member in members for revision in member.seen.get(pool, ()))
        found = [member.gone[pool] for member in members if member.gone.get(pool) is not None]
        if found:
            wanted[pool] = str(found[-1])
        elif counts:
            wanted[pool] = max(counts, key=lambda revision: (counts[revision], revision))
    return wanted


class Claims:
    """The revisions of groups whose ratings are handed on one by one: those that scored the first member.

    At most so many groups are remembered, the last ones to begin.
    """

    def __init__(self, most: int = 65_536) -> None:
        self._most = most
        self._wanted: OrderedDict[Hashable, dict[str, str]] = OrderedDict()

    def for_group(self, group: Hashable) -> Mapping[str, str]:
        """Return the revision that each pool shall score the group's next member with; of no pool before the first."""
        return self._wanted.get(group, {})

    def enter(self, group: Hashable, answered: Answered) -> Mapping[str, str]:
        """Enter what answered for a member, of pools that had not answered yet; return the revisions to use."""
        wanted = self._wanted.setdefault(group, {})
        for pool, seen in answered.seen.items():
            if seen:
                wanted.setdefault(pool, max(seen))
        if len(self._wanted) > self._most:
            self._wanted.popitem(last=False)
        return wanted

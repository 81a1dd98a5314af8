"""Fully asynchronous training: maximum age of a group when it is trained on, in versions of the policy.

A group that began under version p must be trained on while the policy's version is at most p + S, its deadline. Two
rules together ensure this, and neither drops a group:

    groups that begin  outstanding + 1 <= (p + S + 1 - v) * B, with B groups per mini-batch and v the policy's version.
                       If the rollout engine has the current weights, that is AReaL's floor((N - 1) / B) <= v + S for
                       the N-th group (Fu et al. 2025, arXiv:2505.24298, section 5.1)
    groups to train    any complete groups, as long as the others can still be trained in time: for every h >= 0, at
                       most h * B of them have a deadline of v + h or less. Otherwise the mini-batch must have the
                       groups with the earliest deadlines, and waits for them

The first rule bounds how many groups have the latest deadline; the second keeps older groups from piling up behind
newer, faster ones. A fast group waits for a slow one only when the slow one's deadline requires it.
"""

from collections.abc import Sequence

from rewardpool_train.pipeline.schedule import Order, Outstanding, Plan


def capacity(plan: Plan, *, outstanding: int, version: int, published: int, max_staleness: int) -> int:
    """Return how many more groups may begin now, whatever number the job has left.

    Args:
        outstanding: Groups that have begun and are not trained on yet.
        published: Version of the rollout engine's weights, under which the groups would begin.
    """
    return max(0, (published + max_staleness + 1 - version) * plan.groups_per_minibatch - outstanding)


def choose(
    groups: Sequence[Outstanding], plan: Plan, *, version: int, max_staleness: int, order: Order
) -> list[int] | None:
    """Return the indices of the next mini-batch, or None while its groups are not complete.

    Args:
        order: With `prompt`, the mini-batch waits for the groups with the earliest deadlines, prompt by prompt.
    """
    size = plan.groups_per_minibatch
    if sum(group.arrival is not None for group in groups) < size:
        return None
    if order == "prompt":
        first = _by_deadline(groups)[:size]
        return None if _incomplete(first) else [group.index for group in first]
    due = most_urgent(groups, plan, version=version, max_staleness=max_staleness)
    if _incomplete(due):
        return None
    must = {group.index for group in due}
    arrived = sorted(
        (group.arrival, group.index) for group in groups if group.arrival is not None and group.index not in must
    )
    chosen = [group.index for group in due] + [index for _, index in arrived[: size - len(due)]]
    return chosen if len(chosen) == size else None


def most_urgent(groups: Sequence[Outstanding], plan: Plan, *, version: int, max_staleness: int) -> list[Outstanding]:
    """Return the groups that must be in the next mini-batch, the most urgent first.

    They are the groups with the earliest deadlines: as many as are needed so that for every h >= 0 at most h * B of the
    others have a deadline of version + h or less.
    """
    by_deadline = _by_deadline(groups)
    excess = [
        count - (group.version + max_staleness - version) * plan.groups_per_minibatch
        for count, group in enumerate(by_deadline, start=1)
    ]
    return by_deadline[: max([0, *excess])]


def _by_deadline(groups: Sequence[Outstanding]) -> list[Outstanding]:
    return sorted(groups, key=lambda group: (group.version, group.index))


def _incomplete(groups: Sequence[Outstanding]) -> bool:
    return any(group.arrival is None for group in groups)

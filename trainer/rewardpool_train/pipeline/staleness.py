"""Fully asynchronous training: how old a group may be when it is trained on, in versions of the policy.

A group that was begun under version p is trained on while the policy's version is at most p + S: that is its deadline.
Two rules together keep it, and neither drops a group:

    who may begin      outstanding + 1 <= (p + S + 1 - v) * B, with B groups per mini-batch and v the policy's version.
                       Where the rollout side has the weights of now, that is AReaL's floor((N - 1) / B) <= v + S for
                       the N-th group (Fu et al. 2025, arXiv:2505.24298, section 5.1)
    who is trained     any complete groups, as long as the ones left can still be trained in time: for every h >= 0, at
                       most h * B of them have a deadline of v + h or less. Where that is not so, the groups with the
                       earliest deadlines are in, and are waited for

The first bounds how many have the latest deadline, the second keeps earlier ones from piling up behind newer ones that
were faster. A fast group never waits for a slow one until the slow one's deadline forces it to.
"""

from collections.abc import Sequence

from rewardpool_train.pipeline.schedule import Order, Outstanding, Plan


def capacity(plan: Plan, *, outstanding: int, version: int, published: int, max_staleness: int) -> int:
    """Return how many more groups may begin now, not looking at how many the job has left.

    Args:
        plan: Of the job.
        outstanding: Groups that were begun and not yet trained on.
        version: Of the policy.
        published: The version that the rollout side has, under which they would begin.
        max_staleness: S.
    """
    return max(0, (published + max_staleness + 1 - version) * plan.groups_per_minibatch - outstanding)


def choose(
    groups: Sequence[Outstanding], plan: Plan, *, version: int, max_staleness: int, order: Order
) -> list[int] | None:
    """Return the indices of the next mini-batch, or None where its groups are not complete yet.

    Args:
        groups: All that are outstanding.
        plan: Of the job.
        version: Of the policy.
        max_staleness: S.
        order: By `prompt`, the groups with the earliest deadlines are next, prompt by prompt, and are waited for.
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
    """Return the groups that have to be in the next mini-batch, the most urgent first.

    They are the first by deadline, as many as are needed so that for every h >= 0 at most h * B of the others have a
    deadline of version + h or less.
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

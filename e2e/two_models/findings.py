"""What the ratings show, compared with what transformers says of each model. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-3
"""An engine adds up in another order than transformers."""
SHOWN = 5

Truth = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Counts over all groups."""

    groups: int
    of_model: Mapping[str, int]
    """Groups by the model that rated them."""
    split: int
    """Groups that two revisions rated."""
    wrong: int
    """Scores that are not what the named revision's model gives in its own tokens."""
    unscored: int
    problems: tuple[str, ...] = ()
    """The first few, in words."""


def findings(groups: Sequence[Mapping[str, Any]], truth: Truth, model_of: Mapping[str, str]) -> Findings:
    """Return what became of the groups.

    Args:
        groups: Lines of `rating.RATINGS`.
        truth: By model, then by the episode's label.
        model_of: The model that each revision serves.
    """
    problems: list[str] = []
    of_model = dict.fromkeys(sorted(set(model_of.values())), 0)
    split = wrong = unscored = 0
    for group in groups:
        scored = [member for member in group["members"] if member["score"] is not None]
        lost = [member for member in group["members"] if member["score"] is None]
        unscored += len(lost)
        problems += [f"group {group['group']}: {member['problem']}" for member in lost]
        revisions = {member["revision"] for member in scored}
        if len(revisions) > 1:
            split += 1
            problems.append(f"group {group['group']} was rated by {sorted(map(str, revisions))}")
        elif scored and (model := model_of.get(scored[0]["revision"])) is not None:
            of_model[model] += 1
        for member in scored:
            model = model_of.get(member["revision"])
            right = None if model is None else truth[model][member["label"]]
            if right is None or abs(member["score"] - right) > TOLERANCE:
                wrong += 1
                words = f"{member['label']} of revision {member['revision']} got {member['score']} instead of {right}"
                problems.append(words)
    return Findings(
        groups=len(groups),
        of_model=of_model,
        split=split,
        wrong=wrong,
        unscored=unscored,
        problems=tuple(problems[:SHOWN]),
    )

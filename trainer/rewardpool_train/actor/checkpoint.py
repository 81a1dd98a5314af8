"""Checkpoints: all the state that a job needs to resume.

    OUTPUT/checkpoints/step-000040/         a complete checkpoint, renamed to this when all of it is written
        *.distcp, .metadata                 weights and AdamW's state, by torch.distributed.checkpoint
        random.RANK.pt                      the random number generators of one rank
        state.RANK.json                     the caller's state of one rank
        state.json                          the step, and the number of ranks
    OUTPUT/checkpoints/step-000044.part/    one that is being written, or whose writer was killed

Every rank writes its own slices and its own state, so nothing is gathered, and another number of ranks can load the
checkpoint: DCP divides the slices anew. All ranks must see the folder.

https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from rewardpool_train.actor.fsdp import FsdpActor
from rewardpool_train.actor.ranks import Ranks

State = dict[str, Any]  # the caller's part of a checkpoint, as JSON


@dataclass(frozen=True, kw_only=True)
class LoadedCheckpoint:
    """A checkpoint that was loaded."""

    step: int
    folder: Path
    ranks: int

    def state(self, rank: int) -> State:
        state: State = json.loads(_state_file(self.folder, rank).read_text(encoding="utf-8"))
        return state


def save(folder: Path, actor: FsdpActor, *, ranks: Ranks, step: int, state: State, keep: int) -> Path:
    """Write a checkpoint and return its folder; all ranks call this together.

    A process that is killed meanwhile leaves earlier checkpoints unchanged.

    Args:
        step: Step that it is saved after; a checkpoint of the same step is replaced.

    Raises:
        OSError: The folder cannot be written.
        OtherRankError: Another rank cannot write it.
    """
    whole = folder / f"step-{step:06d}"
    unfinished = whole.with_suffix(".part")
    with ranks.synchronized():
        if ranks.first:
            shutil.rmtree(unfinished, ignore_errors=True)  # of a writer that was killed
            unfinished.mkdir(parents=True)
    weights, moments = get_state_dict(actor.model, actor.optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=unfinished)
    with ranks.synchronized():
        torch.save(_random_state(ranks), unfinished / f"random.{ranks.rank}.pt")
        _state_file(unfinished, ranks.rank).write_text(json.dumps(state), encoding="utf-8")
        if ranks.first:
            (unfinished / "state.json").write_text(json.dumps({"step": step, "ranks": ranks.size}), encoding="utf-8")
    with ranks.synchronized():
        if ranks.first:
            shutil.rmtree(whole, ignore_errors=True)
            unfinished.rename(whole)
            for old in list_checkpoints(folder)[:-keep]:
                shutil.rmtree(old)
    return whole


def load(folder: Path, actor: FsdpActor, *, ranks: Ranks) -> LoadedCheckpoint | None:
    """Load weights and optimiser of the newest complete checkpoint; None if there is none. All ranks call this
    together.

    The actor keeps its learning rate, which may have been changed for the rest of the job. The state of the random
    number generators is restored if the number of ranks is the same.
    """
    found = list_checkpoints(folder)
    if not found:
        return None
    newest = found[-1]
    rates = [group["lr"] for group in actor.optimizer.param_groups]
    weights, moments = get_state_dict(actor.model, actor.optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=newest)
    set_state_dict(actor.model, actor.optimizer, model_state_dict=weights, optim_state_dict=moments)
    for group, rate in zip(actor.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    kept = json.loads((newest / "state.json").read_text(encoding="utf-8"))
    if kept["ranks"] == ranks.size:
        _set_random_state(torch.load(newest / f"random.{ranks.rank}.pt"), ranks)
    return LoadedCheckpoint(step=kept["step"], folder=newest, ranks=kept["ranks"])


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the folders of the complete checkpoints, the oldest first."""
    return sorted(path for path in folder.glob("step-*") if re.fullmatch(r"step-\d+", path.name))


def _state_file(folder: Path, rank: int) -> Path:
    return folder / f"state.{rank}.json"


def _random_state(ranks: Ranks) -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if ranks.device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(ranks.device)
    return state


def _set_random_state(state: dict[str, torch.Tensor], ranks: Ranks) -> None:
    torch.set_rng_state(state["cpu"])
    if ranks.device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], ranks.device)

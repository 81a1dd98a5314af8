"""A soak from beginning to end, and everything that is written about it into `.rewardpool/soak/`."""

import dataclasses
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from cluster.contract import Cluster
from cluster.folders import REPOSITORY
from cluster.processes import ClusterError
from cluster.progress import Say
from faults.manifests import TRAFFIC
from faults.reward import expected_score
from installation import Installation, evidence
from rewardpool_api import names
from scene import StoryError, container_of
from soak import picture, report
from soak.changes import CHANGING
from soak.faults import DOING
from soak.journals import read_lives, read_scored, read_traffic
from soak.ledger import judge
from soak.plan import Fault, Round, make_plan
from soak.report import Happened
from soak.stage import NAMESPACE, TRAINER, Stage, has_begun
from soak.watch import Watch

FOLDER = REPOSITORY / ".rewardpool" / "soak"
REPORT = FOLDER / "report.json"
PICTURE = FOLDER / "throughput.png"
LEDGER = FOLDER / "ledger.jsonl"
PLAN = FOLDER / "plan.json"
HAPPENED = FOLDER / "happened.jsonl"
FAILURE = FOLDER / "failure.txt"
AFTER_SECONDS = 5.0
"""From the last fault until the pool is to come to rest."""


def play(cluster: Cluster, installation: Installation, *, minutes: float, seed: int, say: Say) -> dict[str, Any]:
    """Soak a cluster that has the images; return the report.

    Raises:
        StoryError: The pool did not come up, or did not come to rest at the end. What there is of a report is written.
        ClusterError: kubectl or helm failed.
        NotPossibleError: The cluster is not ours to break.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    plan = make_plan(seed, seconds=60.0 * minutes)
    PLAN.write_text(json.dumps([dataclasses.asdict(round_) for round_ in plan], indent=2) + "\n")
    stage = Stage(cluster, installation, folder=FOLDER, say=say)
    happened: list[Happened] = []
    try:
        stage.open()
        began = time.time()
        with Watch(lambda: container_names(stage)) as watch:
            for number, round_ in enumerate(plan, start=1):
                time.sleep(max(0.0, began + round_.at - time.time()))
                say(f"round {number} of {len(plan)}: {words(round_)}")
                happened += break_things(stage, round_, say=say)
            seconds = time.time() - began
            time.sleep(AFTER_SECONDS)
            rests = end(stage)
        made = account(
            began,
            seconds,
            asked_until=stage.asked_until,
            minutes=minutes,
            seed=seed,
            happened=happened,
            memory=watch.memory.growth_mb(),
            say=say,
        )
        if rests is not None:
            raise rests
    except (StoryError, ClusterError):
        logs = {name: ["logs", name, f"--namespace={NAMESPACE}", "--tail=60"] for name in (TRAFFIC, TRAINER)}
        FAILURE.write_text(evidence(cluster, namespace=NAMESPACE, further=logs))
        raise
    finally:
        stage.close()
    return made


def end(stage: Stage) -> StoryError | None:
    """End it; return what went wrong with that, so that the figures are written all the same."""
    try:
        stage.end()
    except StoryError as error:
        return error
    return None


def words(round_: Round) -> str:
    """A round in words."""
    faults = [" ".join(filter(None, [fault.kind, fault.about])) for fault in round_.faults]
    change = [] if round_.change is None else [f"(then {round_.change})"]
    return " and ".join(faults) + "".join(f" {part}" for part in change)


def break_things(stage: Stage, round_: Round, *, say: Say) -> list[Happened]:
    """A round, to the end of what lasts; return what was done. What could not be done is said and not counted."""
    happened: list[Happened] = []
    if round_.change is not None:
        began = time.time()
        try:
            CHANGING[round_.change](stage)
            happened.append(Happened(kind=round_.change, began=began, ended=time.time(), is_change=True))
        except ClusterError as error:
            say(f"  {round_.change} was refused: {error}")
    begun: list[tuple[Fault, float, ExitStack]] = []
    with ExitStack() as everything:
        for fault in round_.faults:
            undo = everything.enter_context(ExitStack())
            at = time.time()
            try:
                undo.enter_context(DOING[fault.kind](stage, fault))
            except (StoryError, ClusterError) as error:
                say(f"  {fault.kind} was not possible: {error}")
                continue
            begun.append((fault, at, undo))
        for fault, at, undo in sorted(begun, key=lambda one: one[1] + one[0].seconds):
            time.sleep(max(0.0, at + fault.seconds - time.time()))
            undo.close()
            ended = time.time() if fault.seconds else at
            happened.append(Happened(kind=fault.kind, began=at, ended=ended))
    with HAPPENED.open("a") as out:
        out.writelines(json.dumps(dataclasses.asdict(one)) + "\n" for one in happened)
    return happened


def container_names(stage: Stage) -> Mapping[str, str]:
    """By a container's id, what it is."""
    pods = [*stage.objects("pods"), *stage.operators()]
    return {container_of(pod): _kind_of(pod) for pod in pods if has_begun(pod)}


def _kind_of(pod: Mapping[str, Any]) -> str:
    labels = pod["metadata"].get("labels", {})
    if labels.get("app.kubernetes.io/name") == "rewardpool-operator":
        return "operator"
    return str(labels.get(names.LABEL_COMPONENT) or pod["metadata"]["name"])


def account(
    began: float,
    seconds: float,
    *,
    asked_until: float,
    minutes: float,
    seed: int,
    happened: Sequence[Happened],
    memory: Mapping[str, float],
    say: Say,
) -> dict[str, Any]:
    """Compare every sample with what it must be; write ledger, report and picture, and return the report."""
    traffic, training = read_traffic(FOLDER / "traffic", until=asked_until), read_lives(FOLDER / "lives")
    texts = {**traffic.texts, **training.texts}
    entries, verdict = judge(
        [*traffic.asked, *training.asked],
        [*traffic.answers, *training.answers],
        scored_by=read_scored(FOLDER / "journal"),
        direct=lambda text: expected_score(texts[text]),
    )
    with LEDGER.open("w") as out:
        out.writelines(json.dumps(dataclasses.asdict(entry)) + "\n" for entry in entries)
    made = report.report(
        minutes=minutes, seed=seed, happened=happened, samples=traffic.timed, verdict=verdict, rss_growth_mb=memory
    )
    report.write(REPORT, made)
    title = (
        f"{made['samples']} samples, {sum(made['faults'].values())} faults of {len(made['faults'])} kinds, seed {seed}"
    )
    picture.draw(
        PICTURE,
        began=began,
        seconds=seconds,
        traffic=[sample.answered for sample in traffic.timed],
        training=[sample.answered for sample in training.timed],
        happened=happened,
        title=title,
    )
    for problem in (*verdict.problems, *training.ended):
        say(f"  {problem}")
    return made

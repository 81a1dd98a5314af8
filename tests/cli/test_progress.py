"""What `rewardpool up` says of a pool that starts, without a terminal."""

from types import SimpleNamespace

import pytest
from support.decide_builders import a_pool

from rewardpool_api import RewardPoolStatus
from rewardpool_cli.progress import StartProgress

URL = "http://127.0.0.1:40000"


def starting(*, ready: int):
    """The pool of two replicas of which so many serve."""
    serving = {"type": "Serving", "reason": "Serving", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    serving["status"] = "True" if ready else "False"
    return a_pool(
        RewardPoolStatus.model_validate({"replicas": 2, "readyReplicas": ready, "url": URL, "conditions": [serving]})
    )


def said(capsys: pytest.CaptureFixture[str], *seen: int, **known: bool) -> list[str]:
    """The lines, without how to use the pool, of someone who looks when so many replicas serve."""
    looked = iter([starting(ready=ready) for ready in seen])
    progress = StartProgress(SimpleNamespace(folder=None, wanted=starting(ready=0)), **known)  # type: ignore[arg-type]
    progress.up.folder = SimpleNamespace(read_pool=lambda: next(looked))  # type: ignore[assignment]
    for now, _ in enumerate(seen):
        progress.poll(float(now))
    return [line for line in capsys.readouterr().err.splitlines() if not line.startswith("  ")]


def test_a_pool_of_which_some_replicas_serve_can_be_used_and_is_ready_when_all_do(capsys):
    assert said(capsys, 0, 1, 1, 2, 2) == [
        f"rl/rm can be used: 1 of 2 replicas serve at {URL}",
        f"rl/rm is ready: 2 of 2 replicas serve at {URL}",
    ]


def test_a_pool_of_which_all_replicas_serve_at_once_is_ready(capsys):
    assert said(capsys, 0, 2, 1, 2) == [f"rl/rm is ready: 2 of 2 replicas serve at {URL}"]


def test_of_a_pool_that_served_already_neither_is_news(capsys):
    assert said(capsys, 1, 2, is_use_printed=True, is_ready_printed=True) == []


def test_why_a_worker_gives_no_score_is_said_once(capsys):
    progress = StartProgress(SimpleNamespace(folder=None, wanted=starting(ready=0)))  # type: ignore[arg-type]
    pool = starting(ready=0)
    (serving,) = pool.status.conditions
    message = "1 of 1 replicas are starting; w gives no score: The model `sn` does not exist."
    told = serving.model_copy(update={"reason": "NoScore", "message": message})
    pool = pool.model_copy(update={"status": pool.status.model_copy(update={"conditions": [told]})})
    progress.print_changes(pool, 0.0)
    progress.print_changes(pool, 1.0)
    assert " ".join(capsys.readouterr().err.split()) == message

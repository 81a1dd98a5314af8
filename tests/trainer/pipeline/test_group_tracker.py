from rewardpool_train.pipeline.group_tracker import GroupTracker
from rewardpool_train.pipeline.parts import GroupTask
from rewardpool_train.pipeline.schedule import Plan
from rewardpool_train.pipeline.state import PipelineState

PLAN = Plan(steps=3, groups_per_step=4, groups_per_minibatch=2, group_size=1)


def tracker_of(state: PipelineState[str] | None = None) -> GroupTracker[str, str]:
    tracker: GroupTracker[str, str] = GroupTracker(PLAN, prompts=str, is_informative=lambda scores: scores != [0.0])
    if state is not None:
        tracker.restore(state)
    return tracker


def rate(tracker: GroupTracker[str, str], tasks: list[GroupTask[str]], score: float = 0.0) -> None:
    for task in tasks:
        tracker.buffer.add_rollout(task.index, 0, "a response")
        tracker.buffer.add_score(task.index, 0, score)


def indices(tasks: list[GroupTask[str]]) -> list[int]:
    return [task.index for task in tasks]


def test_groups_in_the_place_of_others_come_behind_all_that_were_begun_and_are_of_the_same_step() -> None:
    tracker = tracker_of()
    rate(tracker, tracker.begin_step(0))
    ahead = tracker.begin_step(1)
    dropped, others = tracker.replace([1, 3], 0)
    assert ([group.index for group in dropped], indices(ahead), indices(others)) == ([1, 3], [4, 5, 6, 7], [8, 9])
    assert [task.step for task in others] == [0, 0]
    assert [group.index for group in tracker.buffer.in_step(0)] == [0, 2, 8, 9]
    assert indices(tracker.begin_step(2)) == [10, 11, 12, 13]


def test_a_steps_rounds_end_with_it() -> None:
    tracker = tracker_of()
    rate(tracker, tracker.begin_step(0))
    rate(tracker, tracker.replace([0, 1], 0)[1])
    rounds = [tracker.rounds]
    for batch in ([2, 3], [4, 5]):
        tracker.start_training(batch)
        tracker.finish_training()
        rounds.append(tracker.rounds)
    assert rounds == [1, 1, 0]


def test_a_round_that_was_under_way_is_gone_on_with() -> None:
    tracker = tracker_of()
    rate(tracker, tracker.begin_step(0))
    rate(tracker, tracker.begin_step(1))
    rate(tracker, tracker.replace([1, 3], 0)[1][:1])
    state = PipelineState.from_json(tracker.state("one_step_off_minibatch").to_json(encode=str), decode=str)
    state.check("one_step_off_minibatch", PLAN)
    assert (state.dropped, state.rounds, state.again) == (2, 1, {9: 0})

    resumed = tracker_of(state)
    assert resumed.progress().rolled_out == 0
    assert indices(resumed.begin_step(0)) == [9]
    assert resumed.progress().rolled_out == 2
    assert [group.index for group in resumed.buffer.in_step(0)] == [0, 2, 8, 9]
    assert not resumed.buffer.in_step(0)[2].informative
    assert resumed.rounds == 1


def test_what_teaches_nothing_is_known_with_the_last_score() -> None:
    tracker = tracker_of()
    tasks = tracker.begin_step(0)
    rate(tracker, tasks[:1])
    rate(tracker, tasks[1:2], score=1.0)
    assert [group.informative for group in tracker.buffer.in_step(0)] == [False, True, True, True]

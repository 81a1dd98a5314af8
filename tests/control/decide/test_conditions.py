"""What the status says."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.decide_builders import NOW, a_pool, a_router, a_snapshot, a_worker

from rewardpool_control.decide import decide
from rewardpool_control.snapshot import Failure, Gateway

OOM = Failure(reason="OutOfMemory", message="killed by the kernel\nlast line of the log")


def reasons(plan):
    return {condition.type: (condition.status, condition.reason) for condition in plan.status.conditions}


def test_a_serving_pool_is_ready_and_nothing_moves():
    assert reasons(decide(a_snapshot(a_worker("one")))) == {
        "Ready": ("True", "Serving"),
        "Serving": ("True", "Serving"),
        "WorkersReady": ("True", "AllReady"),
        "RouterReady": ("True", "AllReady"),
        "ScalingActive": ("True", "Fixed"),
        "Progressing": ("False", "Stable"),
        "Degraded": ("False", "AsExpected"),
    }


def with_gateway(**gateway):
    return decide(replace(a_snapshot(a_worker("one")), gateway=Gateway(url="http://gateway", **gateway)))


def test_a_pool_is_ready_with_its_gateway():
    assert reasons(with_gateway(ready=1))["GatewayReady"] == ("True", "AllReady")
    assert reasons(with_gateway(ready=1))["Ready"] == ("True", "Serving")
    starting = reasons(with_gateway(wanted=2, ready=1))
    assert (starting["Ready"], starting["GatewayReady"]) == (("False", "Starting"), ("False", "Starting"))
    assert starting["Serving"] == ("True", "Serving")


def test_a_gateway_that_fails_degrades_the_pool():
    found = reasons(with_gateway(failure=OOM))
    assert found["GatewayReady"] == ("False", "OutOfMemory")
    assert found["Degraded"] == ("True", "OutOfMemory")


@pytest.mark.parametrize(
    ("of_model", "reason"),
    [("0123456789abcdef", "VocabularyDiffers"), ("fedcba9876543210", None), (None, None)],
)
def test_a_teacher_with_another_vocabulary_than_the_gateways_callers_is_not_ready(of_model, reason):
    pool = a_pool(
        replicas=1,
        model={"source": "hf://org/teacher", "type": "Teacher"},
        gateway={"vocabulary": "fedcba9876543210"},
    )
    snapshot = a_snapshot(a_worker("one", tokenizer=of_model), pool=pool)
    plan = decide(replace(snapshot, gateway=Gateway(url="http://gateway", ready=1)))
    assert reasons(plan)["GatewayReady"] == ("True" if reason is None else "False", reason or "AllReady")
    assert reasons(plan)["Ready"] == ("True" if reason is None else "False", reason or "Serving")
    assert reasons(plan)["Degraded"] == ("False" if reason is None else "True", reason or "AsExpected")
    if reason is not None:
        message = plan.status.condition("GatewayReady").message
        assert "spec.gateway.vocabulary is fedcba9876543210, and hf://org/teacher has 0123456789abcdef" in message


def test_the_status_has_where_the_gateways_key_is():
    assert with_gateway().status.gateway.secret_name == "rm-gateway"
    there = with_gateway(key_file="/state/gateway-key").status.gateway
    assert (there.key_file, there.secret_name) == ("/state/gateway-key", None)


FUNCTION = {"model": {"source": "python://rewards:score"}, "engine": {"name": "python"}}


def sandboxed(*workers, pool=None):
    plan = decide(a_snapshot(*workers, pool=pool or a_pool(replicas=len(workers), **FUNCTION)))
    condition = plan.status.condition("Sandboxed")
    return condition.status, condition.reason, condition.message


def test_a_pool_of_a_model_says_nothing_of_a_sandbox():
    assert decide(a_snapshot(a_worker("one"))).status.condition("Sandboxed") is None


def test_a_function_is_sandboxed_when_its_workers_found_so():
    assert sandboxed(a_worker("one", answering=False))[:2] == ("Unknown", "NotTried")
    assert sandboxed(a_worker("one", unsandboxed=()))[:2] == ("True", "Enforced")


def test_of_two_workers_the_one_that_lacks_more_is_named():
    key = "the function reaches the pool's key"
    said = sandboxed(a_worker("one", unsandboxed=()), a_worker("two", unsandboxed=(key,)))
    assert said == ("False", "Weakened", f"two: {key}; 1 of 2 workers lack something")


def test_a_worker_that_refuses_to_serve_without_a_sandbox_is_its_reason():
    refused = Failure(reason="SandboxUnavailable", message="lacks Landlock")
    said = sandboxed(a_worker("one", answering=False, running=False, failure=refused))
    assert said == ("False", "SandboxUnavailable", "lacks Landlock")


def test_what_the_last_worker_found_outlives_it():
    first = decide(a_snapshot(a_worker("one", unsandboxed=()), pool=a_pool(replicas=1, **FUNCTION)))
    assert sandboxed(pool=a_pool(replicas=0, status=first.status, **FUNCTION))[:2] == ("True", "Enforced")


def test_a_failing_worker_is_named_with_its_last_lines():
    broken = a_worker("one", answering=False, running=False, failure=OOM)
    plan = decide(a_snapshot(broken, routers=(a_router(),)))
    assert reasons(plan)["Ready"] == ("False", "OutOfMemory")
    assert "last line of the log" in plan.status.condition("Degraded").message


def test_a_worker_that_recovered_is_no_longer_news():
    assert reasons(decide(a_snapshot(a_worker("one", failure=OOM))))["Degraded"] == ("False", "AsExpected")


def test_without_a_router_nothing_is_served():
    plan = decide(a_snapshot(a_worker("one"), routers=(a_router(answering=False, registered=None),)))
    assert reasons(plan)["Serving"] == ("False", "RouterNotReady")


def test_a_router_that_is_to_be_made_is_missing_and_the_status_has_the_number():
    status = decide(replace(a_snapshot(a_worker("one")), wanted_routers=2)).status
    assert status.condition("RouterReady").message == "1 of 2 routers answer"
    assert status.router_replicas == 2


def test_a_worker_counts_as_ready_only_when_every_router_lists_it():
    one = a_worker("one")
    plan = decide(a_snapshot(one, routers=(a_router("a", workers=(one,)), a_router("b"))))
    assert plan.status.ready_replicas == 0


def test_the_transition_time_stays_while_the_condition_does():
    first = decide(a_snapshot(a_worker("one")))
    pool = a_pool(replicas=1, status=first.status)
    later = decide(a_snapshot(a_worker("one"), pool=pool, now=NOW + timedelta(hours=1)))
    assert later.status == first.status


def test_the_length_of_the_model_is_the_shortest_and_outlives_the_workers():
    first = decide(a_snapshot(a_worker("one", max_model_len=512), a_worker("two", max_model_len=1024)))
    assert first.status.model.max_model_len == 512
    later = decide(a_snapshot(pool=a_pool(replicas=2, status=first.status)))
    assert later.status.model.max_model_len == 512


def test_how_many_of_the_wanted_replicas_serve_is_said_as_kubectl_shows_it():
    plan = decide(a_snapshot(a_worker("one"), a_worker("two", answering=False), pool=a_pool(replicas=2)))
    assert plan.status.ready == "1/2"


def test_leaving_workers_are_counted_apart():
    plan = decide(a_snapshot(a_worker("one"), a_worker("two"), pool=a_pool(replicas=1)))
    assert (plan.status.replicas, plan.status.draining_replicas) == (1, 1)


def told(plan):
    return {(event.type, event.reason) for event in plan.events}


def test_what_conditions_say_of_a_start_is_no_event():
    starting = decide(a_snapshot(a_worker("one", answering=False), routers=(a_router(answering=False),)))
    assert told(starting) == set()
    pool = a_pool(replicas=1, status=starting.status)
    serving = decide(a_snapshot(a_worker("one"), pool=pool))
    assert reasons(serving)["Serving"] == ("True", "Serving")
    assert told(serving) <= {("Normal", "RolloutCompleted")}


def test_a_pool_that_served_and_stops_is_a_warning_once():
    serving = decide(a_snapshot(a_worker("one")))
    gone = a_worker("one", answering=False, running=False)
    stopped = decide(a_snapshot(gone, pool=a_pool(replicas=1, status=serving.status)))
    assert ("Warning", "NotServing") in told(stopped)
    again = decide(a_snapshot(gone, pool=a_pool(replicas=1, status=stopped.status)))
    assert ("Warning", "NotServing") not in told(again)


def test_a_pool_that_goes_to_zero_as_it_was_told_is_no_warning():
    first = decide(a_snapshot(a_worker("one")))
    plan = decide(a_snapshot(pool=a_pool(replicas=0, status=first.status), routers=(a_router(),)))
    assert "NotServing" not in {event.reason for event in plan.events}

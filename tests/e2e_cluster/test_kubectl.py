"""What is asked of kubectl, without a cluster."""

import json

from cluster.kubectl import wait_for_crd


def test_a_crd_whose_status_has_no_conditions_yet_is_waited_for() -> None:
    conditions = iter([None, [{"type": "Established", "status": "False"}], [{"type": "Established", "status": "True"}]])

    wait_for_crd(lambda *_: json.dumps({"status": {"conditions": next(conditions)}}), "owners.cluster.test")

    assert next(conditions, "none left") == "none left"

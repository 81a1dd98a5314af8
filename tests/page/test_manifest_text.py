"""A manifest as the page shows it."""

from typing import Any

import pytest
import yaml

from rewardpool_page.manifest_text import HIDDEN, MAX_BYTES, shown
from rewardpool_page.source import NotShownError


def manifest(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "rm", "namespace": "rl", "annotations": {"a": "s3cret"}, "managedFields": [{"a": "s3cret"}]}
    return {"apiVersion": "v1", "kind": "RewardPool", "metadata": metadata, "spec": spec, "status": {"a": "s3cret"}}


def spec_of(**spec: Any) -> Any:
    return yaml.safe_load(shown(manifest(**spec)))["spec"]


def test_it_is_its_names_and_its_spec_alone() -> None:
    found = yaml.safe_load(shown(manifest(replicas=2)))
    assert found == {
        "apiVersion": "v1",
        "kind": "RewardPool",
        "metadata": {"name": "rm", "namespace": "rl"},
        "spec": {"replicas": 2},
    }


def test_values_of_variables_and_headers_are_hidden_wherever_they_stand() -> None:
    reference = {"name": "B", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    pair = {"name": "A", "value": "s3cret"}
    probe = {"httpGet": {"port": 80, "httpHeaders": [pair]}}
    container = {"name": "worker", "env": [pair, reference], "startupProbe": probe}
    template = {"spec": {"containers": [container], "tolerations": [{"key": "gpu", "value": "a"}]}}
    found = spec_of(engine={"env": [pair]}, worker={"podTemplate": template})
    hidden = {"name": "A", "value": HIDDEN}
    shown_container = found["worker"]["podTemplate"]["spec"]["containers"][0]
    assert (found["engine"]["env"], shown_container["env"]) == ([hidden], [hidden, reference])
    assert shown_container["startupProbe"]["httpGet"]["httpHeaders"] == [hidden]
    assert found["worker"]["podTemplate"]["spec"]["tolerations"] == [{"key": "gpu", "value": "a"}]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--api-key", "s3cret", "--x"], ["--api-key", HIDDEN, "--x"]),
        (["--hf_token=s3cret"], [f"--hf_token={HIDDEN}"]),
        (["--max-num-batched-tokens", "8192", "--tokenizer=a"], ["--max-num-batched-tokens", "8192", "--tokenizer=a"]),
    ],
)
def test_what_a_flag_of_a_secret_gets_is_hidden(args: list[str], expected: list[str]) -> None:
    assert spec_of(engine={"args": args})["engine"]["args"] == expected


@pytest.mark.parametrize("odd", [{}, {**manifest(), "metadata": 7}, manifest(a="x" * MAX_BYTES)])
def test_what_is_odd_or_too_large_is_not_shown_and_words_say_so(odd: dict[str, Any]) -> None:
    with pytest.raises(NotShownError, match="kubectl shows it"):
        shown(odd)

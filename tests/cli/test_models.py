"""The catalogue of reward models, and manifests made from a config.json: by tables, FakeHub, and vLLM's own parser."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from support.command_lines import command_lines, expected, parsed
from support.fake_hub import FakeHub
from typer.testing import CliRunner, Result

from rewardpool_api import RewardPool, load_manifest, names
from rewardpool_cli import app
from rewardpool_cli.catalogue import ENTRIES, CannotServeError, Entry, draft, pool_name
from rewardpool_cli.catalogue.manifest import as_yaml
from rewardpool_worker import function_server
from rewardpool_worker.engine_side.transformers_server import options

SERVED = [entry for entry in ENTRIES if entry.spec is not None]
ONE_LABEL = {"architectures": ["Qwen3ForSequenceClassification"], "id2label": {"0": "LABEL_0"}, "dtype": "bfloat16"}


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def error_of(result: Result) -> str:
    assert result.exit_code == 1, result.output
    return str(result.exception)


@pytest.mark.parametrize("entry", SERVED, ids=lambda entry: entry.name)
def test_each_manifest_of_the_list_is_one_that_the_api_takes(entry: Entry) -> None:
    assert entry.manifest is not None
    pool = load_manifest(as_yaml(entry.manifest))
    assert (pool.metadata.name, pool.spec.model.source) == (entry.name, f"hf://{entry.repository}")


@pytest.mark.real
def test_each_command_line_of_the_list_and_of_the_examples_is_one_that_vllm_takes() -> None:
    assert parsed("vllm", command_lines("vllm")) == expected("vllm")


def test_each_command_line_of_the_list_and_of_the_examples_is_one_that_our_own_servers_take() -> None:
    assert [options(line).served_model_name for line in command_lines("transformers")] == ["rm"] * 6
    functions = {function_server.parser().parse_args(line).function for line in command_lines("python")}
    assert functions == {f"{name}:compute_score" for name in ("arithmetic", "checker", "maths", "rewards")}


def test_a_manifest_is_printed_for_each_engine_that_serves_the_model() -> None:
    printed = ask("models", "skywork-reward-llama", "--engine", "sglang").stdout
    assert load_manifest(printed).spec.engine.name == "sglang"
    assert "is served on vllm, and not on sglang" in error_of(ask("models", "rm-mistral", "--engine", "sglang"))


def test_a_model_is_listed_once_and_says_why_where_it_is_not_served() -> None:
    repositories = [repository for entry in ENTRIES for repository in entry.repositories]
    assert len(repositories) == len(set(repositories))
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
    assert [entry.name for entry in ENTRIES if entry.spec is None and not entry.notes] == []


def test_the_list_is_a_table_and_json() -> None:
    records = json.loads(ask("models", "--json").stdout)
    assert [record["name"] for record in records] == [entry.name for entry in ENTRIES]
    shown = ask("models").stdout
    assert all(entry.name in shown for entry in ENTRIES)


def test_a_manifest_of_the_list_is_printed_with_what_to_mind() -> None:
    printed = ask("models", "skywork-reward-v2-qwen3").stdout
    assert printed.startswith("# Run: ")
    assert load_manifest(printed).spec.model.source == "hf://Skywork/Skywork-Reward-V2-Qwen3-8B"


@pytest.mark.parametrize(
    ("name", "words"),
    [("pairrm", "is not served by any engine here"), ("no-such-model", "there is no model no-such-model in the list")],
)
def test_what_has_no_manifest_is_refused_in_words(name: str, words: str) -> None:
    assert words in error_of(ask("models", name))


def spec_of(**config: Any) -> dict[str, Any]:
    """The spec that is drafted from `ONE_LABEL` and these changes."""
    manifest = draft({**ONE_LABEL, **config}, source="hf://org/name").manifest
    RewardPool.model_validate(manifest)
    return dict(manifest["spec"])


@pytest.mark.parametrize(
    ("config", "engine"),
    [
        ({}, {"name": "vllm", "dtype": "bfloat16"}),
        ({"dtype": None, "torch_dtype": "float32"}, {"name": "vllm"}),
        ({"dtype": "torch.float16"}, {"name": "vllm", "dtype": "float16"}),
        ({"dtype": "float8"}, {"name": "vllm"}),
        ({"max_position_embeddings": 4096}, {"name": "vllm", "dtype": "bfloat16", "maxModelLen": 4096}),
        ({"max_position_embeddings": 131_072}, {"name": "vllm", "dtype": "bfloat16", "maxModelLen": 16_384}),
        ({"max_position_embeddings": -1}, {"name": "vllm", "dtype": "bfloat16"}),
    ],
)
def test_number_format_and_length_are_those_of_the_checkpoint(config: dict[str, Any], engine: dict[str, Any]) -> None:
    assert spec_of(**config)["engine"] == engine


def test_a_checkpoint_by_an_older_transformers_names_its_format_otherwise() -> None:
    config = {"architectures": ["LlamaForSequenceClassification"], "num_labels": 1, "torch_dtype": "float32"}
    assert draft(config, source="file:///models/rm").manifest["spec"]["engine"]["dtype"] == "float32"


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Gemma3ForConditionalGeneration"])
def test_a_language_model_is_a_judge_and_says_what_it_may_be_instead(architecture: str) -> None:
    written = draft({"architectures": [architecture]}, source="hf://org/name")
    assert written.manifest["spec"]["model"]["type"] == "Generative"
    assert "a logit of its vocabulary" in " ".join(written.notes)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"architectures": None}, "architectures must name one class, not None"),
        ({"architectures": []}, "architectures must name one class"),
        ({"architectures": "LlamaForSequenceClassification"}, "architectures must name one class"),
        ({"architectures": ["A", "B"]}, "architectures must name one class"),
        ({"id2label": None}, "the head has 2 labels, and nothing says how they make one score. Give --weights"),
        ({"id2label": {"0": "helpful", "1": "safe", "2": "brief"}}, r"the head has 3 labels (helpful, safe, brief)"),
        ({"num_labels": 5}, "the head has 5 labels"),
        ({"num_labels": "1"}, "the head has 1 labels"),
        ({"auto_map": {"AutoModelForSequenceClassification": "modeling.Gate"}}, "the score computed by modeling.Gate"),
        ({"auto_map": {"AutoModel": "modeling.Gate"}}, "give --trust-remote-code, with the commit that you read"),
        ({"architectures": ["LlamaForRewardModelWithGating"]}, "which no engine here is known to serve"),
        ({"architectures": ["DebertaV2ForSequenceClassification"], "id2label": None}, "the head has 2 labels"),
        ({"architectures": ["InternLM2ForRewardModel"]}, "at a token that its own code appends"),
    ],
)
def test_what_no_engine_scores_rightly_is_refused_with_the_field(config: Mapping[str, Any], words: str) -> None:
    with pytest.raises(CannotServeError) as refused:
        draft({**ONE_LABEL, **config}, source="hf://org/name")
    assert words in str(refused.value)
    assert str(refused.value).startswith("config.json: ")


def test_several_labels_are_served_as_their_weights_say() -> None:
    config = {**ONE_LABEL, "id2label": {"0": "helpful", "1": "safe"}}
    written = draft(config, source="hf://org/name", weights=[1.0, -0.5])
    head = RewardPool.model_validate(written.manifest).spec.model.head
    assert head is not None
    assert (head.type, head.weights, head.labels) == ("Classifier", [1.0, -0.5], ["helpful", "safe"])
    with pytest.raises(CannotServeError, match="the head has 2 labels"):
        draft(config, source="hf://org/name", weights=[1.0])
    with pytest.raises(CannotServeError, match="the head has 1 labels"):
        draft(ONE_LABEL, source="hf://org/name", weights=[1.0, 2.0])


@pytest.mark.parametrize(
    ("architecture", "aggregate"), [("Qwen2ForRewardModel", "last"), ("Qwen2ForProcessRewardModel", "min")]
)
def test_a_value_for_each_token_needs_no_code_of_the_checkpoints_own(architecture: str, aggregate: str) -> None:
    spec = spec_of(architectures=[architecture], auto_map={"AutoModel": f"modeling_qwen2_rm.{architecture}"})
    assert (spec["engine"]["name"], spec["model"]["head"]["aggregate"]) == ("vllm", aggregate)
    assert "trustRemoteCode" not in spec["model"]


def test_code_that_was_read_is_run_by_the_engine_for_it() -> None:
    config = {"architectures": ["LlamaForRewardModelWithGating"], "auto_map": {"AutoModel": "modeling.Gate"}}
    written = draft(config, source="hf://org/name", revision="c0ffee", trust_remote_code=True)
    spec = RewardPool.model_validate(written.manifest).spec
    assert (spec.engine.name, spec.model.trust_remote_code, spec.model.revision) == ("transformers", True, "c0ffee")
    assert "modeling.Gate" in written.notes[0]


def test_no_code_is_trusted_where_there_is_none() -> None:
    written = draft(ONE_LABEL, source="hf://org/name", trust_remote_code=True)
    assert "trustRemoteCode" not in written.manifest["spec"]["model"]


def test_a_class_that_only_transformers_has_is_served_by_it() -> None:
    assert spec_of(architectures=["DebertaV2ForSequenceClassification"])["engine"]["name"] == "transformers"


def test_code_for_the_config_alone_computes_no_score() -> None:
    assert spec_of(auto_map={"AutoConfig": "configuration.Config"})["model"]["type"] == "Discriminative"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("hf://Skywork/Skywork-Reward-V2-Qwen3-0.6B", "skywork-reward-v2-qwen3-0-6b"),
        ("file:///models/0.6B_rm", "rm-0-6b-rm"),
        ("hf://org/" + "a-" * 40, ("a-" * 20).strip("-")),
        ("file:///models/___", "rm"),
    ],
)
def test_a_pool_is_named_after_its_model(source: str, name: str) -> None:
    assert pool_name(source) == name


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A hub in whose repository `org/rm` there is a config.json; this process asks it, with an empty cache."""
    from huggingface_hub import constants

    with FakeHub() as hub:
        hub.model("org/rm", {"config.json": json.dumps(ONE_LABEL).encode(), "model.safetensors": b"weights"})
        hub.model("org/empty", {"README.md": b"nothing"})
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield hub


def test_init_reads_the_hub_and_writes_a_manifest_that_is_valid(hub: FakeHub, tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    result = ask("init", "--model", "hf://org/rm", "--name", "mine", "-f", str(file))
    assert result.exit_code == 0, result.exception
    pool = load_manifest(file)
    assert (pool.metadata.name, pool.spec.model.source, pool.spec.engine.dtype) == ("mine", "hf://org/rm", "bfloat16")
    assert hub.downloads("model.safetensors") == 0
    assert "exists already" in error_of(ask("init", "--model", "hf://org/rm", "-f", str(file)))


@pytest.mark.parametrize(
    ("arguments", "token", "words"),
    [
        (["hf://org/absent"], None, "the hub shows no model org/absent: check --model"),
        (["hf://org/rm", "--revision", "v9"], None, "org/rm has no revision v9: check --revision"),
        (["hf://org/empty"], None, "org/empty has no config.json"),
        (["hf://org/rm"], "secret", "accept the conditions of org/rm"),
    ],
)
def test_what_the_hub_does_not_give_out_is_said_with_what_to_do(
    hub: FakeHub, arguments: list[str], token: str | None, words: str
) -> None:
    hub.token = token
    assert words in error_of(ask("init", "--model", *arguments))


def test_without_a_hub_it_is_the_network_that_is_named_and_a_folder_that_is_offered(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time", SimpleNamespace(sleep=lambda seconds: None))
    hub.away = True
    said = error_of(ask("init", "--model", "hf://org/rm"))
    assert "--model file:///PATH" in said
    assert "org/rm" in said


def test_init_reads_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(ONE_LABEL))
    printed = ask("init", "--model", f"file://{tmp_path}").stdout
    assert yaml.safe_load(printed)["spec"]["model"]["source"] == f"file://{tmp_path}"


@pytest.mark.parametrize(("text", "words"), [("{", "is not JSON"), ("[]", "must have a JSON object, not list")])
def test_a_config_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert words in error_of(ask("init", "--model", f"file://{tmp_path}"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("s3://bucket/rm", "--model must be hf://ORG/NAME, file:///ABSOLUTE/PATH or python://MODULE:FUNCTION"),
        ("Skywork/Skywork-Reward", "--model must be hf://ORG/NAME, file:///ABSOLUTE/PATH or python://"),
        ("file:///no/such/folder", "No such file or directory; a model's folder has its config.json"),
        ("hf://llm-blender/PairRM", "cannot be served: It scores pairs"),
        ("hf://RLHFlow/ArmoRM-Llama3-8B-v0.1", "its score is computed by its own code"),
    ],
)
def test_a_source_that_leads_to_no_manifest_is_refused(source: str, words: str) -> None:
    assert words in error_of(ask("init", "--model", source))


def test_a_listed_model_whose_code_was_read_gets_its_manifest() -> None:
    result = ask("init", "--model", "hf://RLHFlow/ArmoRM-Llama3-8B-v0.1", "--trust-remote-code")
    assert load_manifest(result.stdout).spec.engine.name == "transformers"


def test_a_listed_model_gets_the_lists_manifest_without_the_hub() -> None:
    result = ask("init", "--model", "hf://Skywork/Skywork-Reward-V2-Qwen3-0.6B", "--revision", "v1")
    pool = load_manifest(result.stdout)
    assert (pool.metadata.name, pool.spec.model.revision) == ("skywork-reward-v2-qwen3-0-6b", "v1")
    assert "# Written for Skywork/Skywork-Reward-V2-Qwen3-8B" in result.stdout
    assert pool.kind == names.KIND

"""Which adapters engines would score as what they are, as tables. That they do is in tests/engines/test_adapters.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from rewardpool_worker.engine_side.lora_adapters import Adapter, AdapterError, adapters_or_refuse, check, vllm_flags

Q, V = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj"
BASE = {f"{Q}.weight": (64, 32), f"{V}.weight": (16, 32), "score.weight": (1, 32)}
HEAD = "base_model.model.score.weight"


def matrices(layer: str, out: int, into: int, rank: int = 4) -> dict[str, tuple[int, ...]]:
    where = f"base_model.model.{layer}"
    return {f"{where}.lora_A.weight": (rank, into), f"{where}.lora_B.weight": (out, rank)}


GOOD = matrices(Q, 64, 32)


def adapter(shapes: dict[str, tuple[int, ...]], **config: Any) -> Adapter:
    return Adapter("safe", "/adapters/safe", {"peft_type": "LORA", "r": 4, **config}, shapes)


@pytest.mark.parametrize(
    "good",
    [
        adapter(GOOD),
        adapter(GOOD | matrices(V, 16, 32, rank=7), bias="none", use_dora=False, init_lora_weights="gaussian"),
        adapter(GOOD | {HEAD: (1, 32)}, modules_to_save=["classifier", "score"]),
    ],
)
def test_an_adapter_of_the_base_is_taken(good: Adapter) -> None:
    check(good, BASE)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (adapter(matrices(Q, 64, 16)), "it is of another model"),
        (adapter(matrices(Q, 32, 32)), "it is of another model"),
        (adapter(matrices("model.layers.1.self_attn.q_proj", 64, 32)), "which its base has no weight of"),
        (adapter(dict(list(GOOD.items())[:1])), "it is of another model"),
        (adapter({}), "changes no layer"),
        (adapter(GOOD | {HEAD: (1, 32)}), "modules_to_save of its adapter_config.json does not say score"),
        (adapter(GOOD, modules_to_save=["score"]), "would score by the base's head"),
        (adapter(GOOD | {HEAD: (2, 32)}, modules_to_save=["score"]), r"a head of \[2, 32\], and its base one of"),
        (adapter(GOOD | matrices("score", 1, 32)), "neither a LoRA matrix of a layer nor the head"),
        (
            adapter(GOOD | {"base_model.model.model.embed_tokens.base_layer.weight": (9, 32)}),
            "engines would leave it out",
        ),
        (adapter(GOOD, use_dora=True), "use_dora True"),
        (adapter(GOOD, bias="all"), "bias 'all'"),
        (adapter(GOOD, init_lora_weights="pissa"), "init_lora_weights 'pissa'"),
        (adapter(GOOD, peft_type="IA3"), "only LORA is served"),
    ],
)
def test_what_an_engine_would_score_as_something_else_is_refused(bad: Adapter, words: str) -> None:
    with pytest.raises(AdapterError, match=words) as refused:
        check(bad, BASE)
    assert "the adapter safe" in str(refused.value)


def test_a_base_that_is_no_reward_model_is_refused() -> None:
    with pytest.raises(AdapterError, match=r"spec.model.source must be a reward model itself"):
        check(adapter(GOOD), {f"{Q}.weight": (64, 32), "lm_head.weight": (100, 32)})


@pytest.mark.parametrize(("ranks", "most"), [((1,), 1), ((4,), 8), ((4, 33), 64), ((512,), 512)])
def test_vllm_is_given_the_largest_rank_there_is(ranks: tuple[int, ...], most: int) -> None:
    found = vllm_flags([adapter(matrices(Q, 64, 32, rank=rank)) for rank in ranks], BASE, [])
    assert found[1:3] == ["--max-num-seqs", "1"]
    del found[1:3]
    assert found[:6] == [
        "--enable-lora",
        "--max-loras",
        str(len(ranks)),
        "--max-lora-rank",
        str(most),
        "--lora-modules",
    ]
    assert [json.loads(text) for text in found[6:]] == [{"name": "safe", "path": "/adapters/safe"}] * len(ranks)


def test_a_rank_beyond_all_is_refused() -> None:
    with pytest.raises(AdapterError, match="the rank 513"):
        vllm_flags([adapter(matrices(Q, 64, 32, rank=513))], BASE, [])


def weights(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """A file of safetensors without the numbers, which nobody reads here."""
    entries = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    header = json.dumps({"__metadata__": {}, **entries}).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header)


@pytest.mark.parametrize(("into", "words"), [(32, ""), (16, "model refused: the adapter safe has matrices of")])
def test_the_launcher_compares_the_files(
    into: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weights(tmp_path / "base" / "model-00001.safetensors", {f"{Q}.weight": (64, 32)})
    weights(tmp_path / "base" / "model-00002.safetensors", {"score.weight": (1, 32)})
    weights(tmp_path / "safe" / "adapter_model.safetensors", matrices(Q, 64, into))
    (tmp_path / "safe" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    monkeypatch.setenv("REWARDPOOL_MODEL_PATH", str(tmp_path / "base"))
    monkeypatch.setenv("REWARDPOOL_ADAPTERS", json.dumps([{"name": "safe", "path": str(tmp_path / "safe")}]))
    found = adapters_or_refuse(["--model", str(tmp_path / "base")], vllm_flags)
    assert (found is None) == bool(words)
    assert capsys.readouterr().err.startswith(words)


def test_a_folder_without_an_adapter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REWARDPOOL_MODEL_PATH", str(tmp_path))
    monkeypatch.setenv("REWARDPOOL_ADAPTERS", json.dumps([{"name": "safe", "path": str(tmp_path)}]))
    assert adapters_or_refuse([], vllm_flags) is None
    assert "the adapter safe has no adapter_config.json" in capsys.readouterr().err


def test_without_adapters_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REWARDPOOL_ADAPTERS", raising=False)
    assert adapters_or_refuse([], vllm_flags) == []

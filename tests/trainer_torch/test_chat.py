"""Conversations in a real tokenizer's tokens, with real chat templates: one BOS, every turn, whatever the template."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from support.byte_tokenizer import BOS, PAD, TEMPLATE, TEMPLATE_WITH_BOS, TEMPLATE_WITHOUT_SYSTEM, byte_tokenizer
from support.fake_worker import FakeWorker
from support.local_pool import POOL, on_this_machine, write_local_pool

from rewardpool._rewards import open_reward
from rewardpool._rewards.chat.chat_template import ChatTokenizer, apply_system, load_tokenizer
from rewardpool._rewards.together import MOST_AT_ONCE
from rewardpool.errors import ConfigError

TURNS = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4"},
]


async def tokens(tokenizer: Any, turns: list[dict[str, str]] = TURNS, **settings: Any) -> list[str]:
    """The conversation's tokens as texts."""
    ids = await ChatTokenizer(tokenizer, **settings).token_ids(turns)
    return [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]


@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE_WITH_BOS])
async def test_there_is_one_bos_where_tokenizer_or_template_has_one_and_none_elsewhere(
    template: str, adds_bos: bool
) -> None:
    found = await tokens(byte_tokenizer(template=template, adds_bos=adds_bos))
    expected = 1 if adds_bos or template == TEMPLATE_WITH_BOS else 0
    assert found.count(BOS) == expected
    assert (found[0] == BOS) == bool(expected)


def test_a_tokenizers_own_code_is_never_run_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Own: pass\n")
    said = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_tokenizer(str(tmp_path), revision=None, field="tokenizer")
    assert not marker.exists()


async def test_every_turn_is_there_in_the_models_own_template() -> None:
    tokenizer = byte_tokenizer(template=TEMPLATE)
    ids = await ChatTokenizer(tokenizer).token_ids(TURNS)
    expected = "".join(f"<|{turn['role']}|>{turn['content']}<|end|>" for turn in TURNS)
    assert tokenizer.decode(ids) == expected


def counted(chat: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts are tokenised together, each time."""
    calls: list[int] = []
    encode = chat._control.encode

    def counting(texts: Sequence[str]) -> list[list[int]]:
        calls.append(len(texts))
        return encode(texts)

    monkeypatch.setattr(chat._control, "encode", counting)
    return calls


async def test_conversations_that_wait_are_tokenised_together_and_each_gets_its_own_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = byte_tokenizer(template=TEMPLATE)
    chat = ChatTokenizer(tokenizer)
    calls = counted(chat, monkeypatch)
    said = [[{"role": "user", "content": f"number {number}"}] for number in range(100)]
    found = await asyncio.gather(*(chat.token_ids(turns) for turns in said))
    assert [tokenizer.decode(ids) for ids in found] == [f"<|user|>number {number}<|end|>" for number in range(100)]
    assert calls == [1, MOST_AT_ONCE, 100 - 1 - MOST_AT_ONCE]


async def test_a_template_of_the_config_goes_before_the_tokenizers() -> None:
    tokenizer = byte_tokenizer(template=TEMPLATE)
    ids = await ChatTokenizer(tokenizer, template="{{ messages[-1]['content'] }}").token_ids(TURNS)
    assert tokenizer.decode(ids) == "4"


async def test_a_template_that_refuses_system_messages_says_what_to_set() -> None:
    with pytest.raises(ValueError, match=r"no system messages, please.*set system to merge or drop"):
        await tokens(byte_tokenizer(template=TEMPLATE_WITHOUT_SYSTEM))


@pytest.mark.parametrize("policy", ["merge", "drop"])
async def test_system_messages_can_be_merged_or_dropped_for_it(policy: Any) -> None:
    tokenizer = byte_tokenizer(template=TEMPLATE_WITHOUT_SYSTEM)
    text = tokenizer.decode(await ChatTokenizer(tokenizer, system=policy).token_ids(TURNS))
    assert text.startswith("<|user|>Be kind.\n\nHi<|end|>" if policy == "merge" else "<|user|>Hi<|end|>")


def test_without_a_users_turn_a_merged_system_message_becomes_one() -> None:
    merged = apply_system([TURNS[0], TURNS[4]], "merge")
    assert merged == [{"role": "user", "content": "Be kind."}, TURNS[4]]
    assert TURNS[0]["role"] == "system"


def test_a_saved_tokenizer_that_truncates_does_not_cut_a_conversation(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(template=TEMPLATE)
    tokenizer.backend_tokenizer.enable_truncation(5)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(str(tmp_path), revision=None, field="reward.tokenizer")
    assert len(asyncio.run(ChatTokenizer(loaded).token_ids(TURNS))) > 5


def test_a_folder_without_a_tokenizer_is_a_mistake_of_that_field(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reward\.tokenizer: the tokenizer .* cannot be loaded"):
        load_tokenizer(str(tmp_path), revision=None, field="reward.tokenizer")


async def test_the_tokenizer_is_that_of_the_model_which_the_pools_object_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    byte_tokenizer(template=TEMPLATE).save_pretrained(model)
    on_this_machine(monkeypatch, tmp_path / "state")
    write_local_pool(tmp_path / "state", source=f"file://{model}")
    async with open_reward(POOL) as reward:
        assert reward.names == ("skywork",)


async def test_the_call_that_the_readme_shows_sends_one_bos(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(template=TEMPLATE_WITH_BOS, adds_bos=True)
    tokenizer.save_pretrained(tmp_path / "model")
    on_this_machine(monkeypatch, tmp_path / "state")
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    names: dict[str, Any] = {}
    async with FakeWorker() as worker:
        write_local_pool(tmp_path / "state", url=worker.url, source=f"file://{tmp_path / 'model'}")
        await asyncio.to_thread(exec, compile(code, "README.md", "exec"), names)
        await asyncio.to_thread(names["reward"].close)
    inputs = [request["input"] for request in worker.requests]
    assert sorted(names["scores"]) == sorted(float(len(ids)) for ids in inputs)
    assert [tokenizer.convert_ids_to_tokens(ids).count(BOS) for ids in inputs] == [1, 1]


def test_what_scores_without_a_tokenizer_does_not_import_transformers() -> None:
    program = "import sys, rewardpool._rewards; sys.exit('transformers' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def conversation(*turns: dict[str, Any], **settings: Any) -> str:
    """What the model reads of these turns."""
    tokenizer = byte_tokenizer(template=settings.pop("template", TEMPLATE))
    return str(tokenizer.decode(asyncio.run(ChatTokenizer(tokenizer, **settings).token_ids(turns))))


def test_words_in_blocks_are_the_same_conversation_as_words() -> None:
    blocks = [{"type": "text", "text": "2 + "}, {"type": "text", "text": "2?"}]
    assert conversation({"role": "user", "content": blocks}) == "<|user|>2 + 2?<|end|>"


def test_an_assistant_that_only_calls_tools_does_not_say_none() -> None:
    template = TEMPLATE.replace("<|end|>", "{{ message['tool_calls'] | tojson if message['tool_calls'] }}<|end|>")
    turn = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}
    assert "None" not in conversation(turn, template=template)


def test_a_template_that_leaves_a_turn_or_a_call_out_is_refused_with_the_words_that_are_missing() -> None:
    call = {"role": "assistant", "content": "Let me see.", "tool_calls": [{"function": {"name": "add"}}]}
    answer = {"role": "tool", "content": "It is 4."}
    with pytest.raises(ValueError, match=r"leaves out words of turn 1 \(assistant\): 'add'"):
        conversation(call, answer)
    users = "{% for m in messages if m['role'] != 'tool' %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(ValueError, match=r"leaves out words of turn 2 \(tool\): 'It is 4\.'"):
        conversation(TURNS[1], answer, template=users)


def test_a_template_may_write_a_tools_answer_as_json_and_leave_out_earlier_thoughts() -> None:
    as_json = "{% for m in messages %}{{ m['content'].split('</think>')[-1] | tojson }}{% endfor %}"
    thoughts = {"role": "assistant", "content": '<think>hm</think>I say "4"'}
    assert conversation(thoughts, {"role": "tool", "content": 'a "b"\nc'}, template=as_json).endswith('c"')


def test_the_reward_models_own_system_prompt_comes_first_and_alone() -> None:
    text = conversation(*TURNS, system="drop", system_prompt="Reason step by step.")
    assert text.startswith("<|system|>Reason step by step.<|end|><|user|>Hi<|end|>")
    assert text.count("<|system|>") == 1


@pytest.mark.parametrize(("template", "warnings"), [(TEMPLATE, 0), (TEMPLATE.replace("<|end|>", PAD), 1)])
def test_a_template_that_ends_in_the_pad_token_is_warned_of_once(
    template: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    chat = ChatTokenizer(byte_tokenizer(template=template))
    for _ in range(2):
        asyncio.run(chat.token_ids(TURNS))
    assert sum("end in the tokenizer's pad token" in record.message for record in caplog.records) == warnings


def test_half_a_character_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'\\ud83d' in it, a lone surrogate"):
        conversation({"role": "user", "content": "a\ud83db"})


@pytest.mark.parametrize("words", ["", " \n", "x" * 1_000_000])
def test_empty_blank_and_long_words_are_tokenised_whole(words: str) -> None:
    assert conversation({"role": "user", "content": words}) == f"<|user|>{words}<|end|>"


DROPS_THOUGHTS = TEMPLATE.replace("message['content']", "message['content'].split('</think>')[-1]")
"""As DeepSeek-R1's."""
WRITES_THOUGHTS = TEMPLATE.replace(
    "message['content']",
    """('<think>\n' + message['content'].split('</think>')[0].split('<think>')[-1].strip() * ('</think>' in """
    """message['content']) + '\n</think>\n\n' if loop.last else '') + """
    "message['content'].split('</think>')[-1].strip()",
)
"""As Qwen3's."""
QUESTION = {"role": "user", "content": "6 * 7?"}


def answer(words: str) -> dict[str, str]:
    return {"role": "assistant", "content": words}


def test_a_template_that_drops_the_last_turns_thoughts_is_refused_and_says_what_to_set() -> None:
    assert DROPS_THOUGHTS != TEMPLATE
    with pytest.raises(ValueError, match=r"words of turn 2 \(assistant\): 'First 6\.'; set strip_reasoning: true if"):
        conversation(QUESTION, answer("<think>First 6.</think>42"), template=DROPS_THOUGHTS)
    earlier = [QUESTION, answer("<think>First 6.</think>42"), QUESTION, answer("42")]
    assert "First" not in conversation(*earlier, template=DROPS_THOUGHTS)


@pytest.mark.parametrize("thoughts", ["<think>First 6.</think>42", "First 6.\n</think>\n42"])
def test_a_template_that_writes_the_last_turns_thoughts_in_its_own_way_is_taken(thoughts: str) -> None:
    text = conversation(QUESTION, answer(thoughts), template=WRITES_THOUGHTS)
    assert text.endswith("<|assistant|><think>\nFirst 6.\n</think>\n\n42<|end|>")


def test_an_answer_that_names_a_tag_is_not_cut_by_a_template() -> None:
    words = "42. (A model ends its thoughts with `</think>`.)"
    assert words in conversation(QUESTION, answer(words))
    with pytest.raises(ValueError, match=r"leaves out words of turn 2 \(assistant\): '42"):
        conversation(QUESTION, answer(words), template=DROPS_THOUGHTS)
    with pytest.raises(ValueError, match=r"leaves out words of turn 2 \(assistant\): '42"):
        conversation(QUESTION, answer(words), QUESTION, answer("42"), template=DROPS_THOUGHTS)


def test_thoughts_that_do_not_end_are_written_as_those_that_do_or_refused() -> None:
    cut_off = answer("<think>First 6")
    assert conversation(QUESTION, cut_off).endswith("<|assistant|><think>First 6<|end|>")
    for template in (DROPS_THOUGHTS, WRITES_THOUGHTS):
        with pytest.raises(
            ValueError, match="thoughts do not end, and the chat template writes such thoughts in anoth"
        ):
            conversation(QUESTION, cut_off, template=template)


def blank_tokenizer() -> Any:
    """As SentencePiece's: texts begin with a blank, and a step's tag is a token with it and another one without."""
    letters = {letter: number for number, letter in enumerate(["<unk>", *"\u2581abк и", "ки", "\u2581ки"])}
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=letters, merges=[("к", "и"), ("\u2581", "ки")], unk_token="<unk>")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = tokenizers.decoders.Metaspace(prepend_scheme="first")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", chat_template="a")


@pytest.mark.parametrize(("step_token", "warns"), [("ки", True), (" ки", False), ("\u2581ки", False)])
def test_a_step_token_that_the_tokenizer_writes_as_another_one_is_warned_of(
    step_token: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = blank_tokenizer()
    ChatTokenizer(tokenizer, step_token=step_token).close()
    other = tokenizer.convert_tokens_to_ids("\u2581ки")
    named = f"as '\u2581ки' (token {other})"
    assert [named in record.getMessage() for record in caplog.records] == [True] * warns

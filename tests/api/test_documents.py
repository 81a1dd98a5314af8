"""Bytes read as kubectl reads them; each expectation was seen of a real kubectl."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardpool_api.documents import DocumentsError, read_documents, resolved, write_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("y", True), ("Yes", True), ("on", True), ("n", False), ("NO", False), ("off", False), ("tRue", "tRue")),
        *(("010", 8), ("0o10", 8), ("0O10", 8), ("08", 8.0), ("0X1f", 31), ("-0b11", -3), ("0b2", "0b2")),
        *(("1_000", 1000), ("1__0", 10), ("_1", "_1"), ("0x_1", 1), ("1e1_0", 1e10), ("1_0.5", 10.5)),
        *(("1e3", 1e3), ("1E-2", 0.01), ("5.", 5.0), ("+.5", 0.5), (".5", 0.5), ("1e400", "1e400"), ("1e", "1e")),
        *(("1:30", "1:30"), ("190:20:30.15", "190:20:30.15"), ("2001-01-01", "2001-01-01"), ("0x1p4", "0x1p4")),
        *(("18446744073709551615", 2**64 - 1), ("18446744073709551616", 2.0**64), ("0xFFFFFFFFFFFFFFFFFF",) * 2),
        *(("~", None), ("NULL", None), ("nULL", "nULL"), ("=", "="), ("<<", "<<"), ("inf", "inf"), ("+", "+")),
    ],
)
def test_plain_words_are_what_gos_yaml_takes_them_for(text: str, value: Any) -> None:
    assert (resolved(text), type(resolved(text))) == (value, type(value))


POOL = {"a": 1}


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("a: 1", [POOL]),
        ("\ufeffa: 1", [POOL]),
        ("---\n---\na: 1\n---\n# nothing\n", [POOL]),
        ("a: 1\r\n---\r\nb: 2.0\r\n", [POOL, {"b": 2}]),
        ('{"a": 1.0}', [POOL]),
        ("a: 3.654440836250819e+16", [{"a": 36544408362508190}]),
        ("a: 18446744073709551616", [{"a": 2.0**64}]),
        ('\t{"a": 1}\n{"b": "\\ud83d\\ude00\\/"}', [POOL, {"b": "😀/"}]),
        ('{"a": 1}\n---\nb: yes', [POOL, {"b": True}]),
        ("{a: 1}", [POOL]),
        ("apiVersion: v1\nkind: List\nitems: [{a: 1}, {b: 2}]", [POOL, {"b": 2}]),
        ("apiVersion: rewardpool.dev/v1alpha1\nkind: RewardPoolList\nitems: [{a: 1}]", [POOL]),
        ("a:\t1", [POOL]),
        ("{1: a, 0x10: b, yes: c, 1.50: d, 1e3: e, 1e21: f, .inf: g}",) * 1
        + ([{"1": "a", "16": "b", "true": "c", "1.5": "d", "1000": "e", "1e+21": "f", ".inf": "g"}],),
        ("b: {c: 3, <<: {c: 1, d: 2}, d: 4}", [{"b": {"c": 1, "d": 4}}]),
        ("b: {<<: [{c: 1}, {c: 2, d: 2}]}", [{"b": {"c": 1, "d": 2}}]),
        ("[!!str 010, ! 1, !!int '3', !!float 1, !!bool y, !!binary aGk=, !own 1, !own {a: 1}, !!set {a}]",) * 1
        + ([["010", "1", 3, 1, True, "hi", "1", {"a": 1}, {"a": None}]],),
    ],
)
def test_a_file_is_read_as_kubectl_reads_it(text: str, documents: list[Any]) -> None:
    assert read_documents(text.encode()) == documents


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_byte_order_mark_says_the_encoding(encoding: str) -> None:
    mark = "\ufeff" if encoding.endswith("e") else ""
    assert read_documents(f"{mark}a: é".encode(encoding)) == [{"a": "é"}]


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abyn"), inner, max_size=3),
)


@given(st.one_of(_json, st.from_regex(r"\A[-+.0-9_eExXoObByYnN:~]{1,8}\Z").map(lambda text: {"a": text})))
def test_what_is_written_is_read_as_the_same(value: Any) -> None:
    assert read_documents(write_document([value]).encode()) == [[value]]


@pytest.mark.parametrize("text", ['{"a": 1' + "0" * 400 + "}", "x: !!binary \u00e9", "x: !!binary //8="])
def test_values_that_cannot_be_read_are_refused_in_words(text: str) -> None:
    with pytest.raises(DocumentsError):
        read_documents(text.encode())


def test_a_number_of_thousands_of_digits_is_text() -> None:
    digits = "1" * 5000
    assert read_documents(f"x: {digits}".encode()) == [{"x": digits}]


def test_documents_of_json_may_follow_each_other() -> None:
    assert read_documents(b' {"a": 1}{"a": 1} \n{"a": 1}\n') == [POOL] * 3


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_a_null_label_is_refused_in_a_list_alone(field: str) -> None:
    pool = {"kind": "RewardPool", "metadata": {field: {"a": None}}}
    assert read_documents(json.dumps(pool).encode()) == [pool]
    with pytest.raises(DocumentsError, match=rf"^items\[0\]\.metadata\.{field}\.a is null"):
        read_documents(json.dumps({"apiVersion": "v1", "kind": "List", "items": [pool]}).encode())

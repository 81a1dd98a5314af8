"""Model sources and their parts."""

import pytest

from rewardpool_api import ModelSource, parse_source


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("hf://org/name", ModelSource("hf", "org/name")),
        ("hf://gpt2", ModelSource("hf", "gpt2")),
        ("s3://bucket/a/b", ModelSource("s3", "bucket/a/b")),
        ("pvc://claim/a/b", ModelSource("pvc", "a/b", "claim")),
        ("file:///a/b", ModelSource("file", "/a/b")),
        ("pvc://claim", ModelSource("pvc", "", "claim")),
        ("hf://org/name/", ModelSource("hf", "org/name")),
        ("s3://bucket/a/", ModelSource("s3", "bucket/a")),
        ("pvc://claim/", ModelSource("pvc", "", "claim")),
        ("pvc://claim/a/", ModelSource("pvc", "a", "claim")),
        ("file:///a/b/", ModelSource("file", "/a/b")),
        ("python://pkg.mod:fn", ModelSource("python", "pkg.mod:fn")),
    ],
)
def test_a_source_is_taken_apart(url, source):
    assert parse_source(url) == source


@pytest.mark.parametrize(
    "url",
    [
        "",
        "org/name",
        "http://x",
        "file://relative",
        "file:///",
        "file:///a//",
        "pvc://",
        "s3://bucket/",
        "python://pkg.mod:fn/",
        "python://module",
        "file:///a/../b",
        "s3://bucket",
        "s3://B_/k",
    ],
)
def test_another_source_is_refused_with_the_forms_there_are(url):
    with pytest.raises(ValueError, match="hf://ORG/NAME"):
        parse_source(url)

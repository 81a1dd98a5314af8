"""Downloads from a hub: once, in one piece, and of one commit; and what is said when it cannot be."""

import errno
import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from support.downloads import FILES, REPO, Make, content, together
from support.fake_hub import FakeHub

from rewardpool_worker.engine_side.download.errors import DownloadError
from rewardpool_worker.engine_side.download.hub import HubSource, wanted
from rewardpool_worker.engine_side.download.release import RemoteFile
from rewardpool_worker.engine_side.download.run import DownloadJob


def test_a_model_is_where_the_link_says(download: Make, hub: FakeHub) -> None:
    one = download()
    outcome = one.run()
    assert content(one) == FILES
    assert (outcome.commit, outcome.files, outcome.size) == (hub.repos[REPO].main, 2, 10_242)


def test_pods_that_share_a_cache_download_once(download: Make, hub: FakeHub) -> None:
    pods = [download() for _ in range(3)]
    together(*pods)
    assert [content(pod) for pod in pods] == [FILES] * 3
    assert hub.downloads("model.safetensors") == 1


def test_a_pinned_release_that_is_there_asks_nobody(download: Make, hub: FakeHub) -> None:
    commit = download().run().commit
    hub.away = True
    assert download(pin=commit).run().commit == commit


def test_a_branch_that_moves_leaves_pinned_workers_where_they_are(download: Make, hub: FakeHub) -> None:
    first = download().run().commit
    hub.repos[REPO].push({**FILES, "config.json": b'{"new": 1}'})
    pinned = download(pin=first)
    pinned.run()
    assert content(pinned) == FILES
    assert download().run().commit == hub.repos[REPO].main != first


def test_a_pin_made_by_another_pod_meanwhile_wins(download: Make, hub: FakeHub) -> None:
    first = hub.repos[REPO].main
    hub.repos[REPO].push({**FILES, "config.json": b'{"new": 1}'})
    pins = iter([None, first])
    late = replace(download(), pinned=lambda: next(pins))
    assert late.run().commit == first
    assert content(late) == FILES


def test_what_did_not_change_between_commits_is_not_fetched_again(download: Make, hub: FakeHub) -> None:
    download().run()
    hub.repos[REPO].push({**FILES, "config.json": b'{"new": 1}'})
    download().run()
    assert hub.downloads("model.safetensors") == 1


def test_a_cache_filled_by_the_library_is_used(download: Make, hub: FakeHub) -> None:
    one = download()
    for file in one.source.release(None).files:
        blob = one.cache.folder / "blobs" / file.name
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(FILES[file.path])
    one.run()
    assert hub.asked == []


def test_a_corrupted_answer_is_thrown_away_and_fetched_again(download: Make, hub: FakeHub) -> None:
    hub.corrupted = 1
    one = download()
    one.run()
    assert content(one) == FILES


def test_an_answer_that_stays_corrupted_is_an_error(download: Make, hub: FakeHub) -> None:
    hub.corrupted = 99
    with pytest.raises(DownloadError, match="not what the server says") as caught:
        download().run()
    assert caught.value.reason == "ChecksumMismatch"


def test_a_file_that_rotted_in_the_cache_is_caught_before_the_release_is_called_complete(
    download: Make, hub: FakeHub
) -> None:
    one = download()
    one.run()
    blob = (one.link / "model.safetensors").resolve()
    blob.write_bytes(bytes(len(FILES["model.safetensors"])))
    shutil.rmtree(one.cache.own)
    again = download()
    again.run()
    assert content(again) == FILES


def weights_of(one: DownloadJob) -> Path:
    """The cache's own file, which all pods of a claim read."""
    return (one.link / "model.safetensors").resolve()


def with_head_negated(weights: Path) -> None:
    weights.write_bytes(bytes(255 - byte for byte in weights.read_bytes()))


@pytest.mark.parametrize("pinned", [True, False])
def test_weights_that_were_changed_in_the_cache_in_their_size_are_refused_by_name(download: Make, pinned: bool) -> None:
    one = download()
    commit = one.run().commit
    with_head_negated(weights_of(one))
    late = download(pin=commit if pinned else None)
    with pytest.raises(DownloadError, match=r"^model\.safetensors in models--org--rm of the cache: not what") as caught:
        late.run()
    assert caught.value.reason == "CacheChanged"
    assert not late.link.exists()


def test_what_was_changed_in_the_cache_is_had_again_once_its_record_is_removed(download: Make) -> None:
    one = download()
    commit = one.run().commit
    with_head_negated(weights_of(one))
    shutil.rmtree(one.cache.own)
    again = download(pin=commit)
    again.run()
    assert content(again) == FILES


def test_a_record_that_was_written_for_changed_weights_is_not_believed_where_the_hub_is_asked(download: Make) -> None:
    one = download()
    commit = one.run().commit
    weights, (record,) = weights_of(one), one.cache.own.glob("*.json")
    former, _ = hashlib.sha256(weights.read_bytes()).hexdigest(), with_head_negated(weights)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    record.write_text(record.read_text().replace(f"sha256:{former}", f"sha256:{digest}"))
    again = download()
    assert again.run().commit == commit
    assert content(again) == FILES


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[" * 5000, '{"files": {}}', '{"files": {"../../x": {"name": "x", "size": 1, "digest": "md5:"}}}'],
)
def test_a_record_that_is_none_has_the_files_checked_anew(download: Make, hub: FakeHub, text: str) -> None:
    one = download()
    commit = one.run().commit
    (record,) = one.cache.own.glob("*.json")
    record.write_text(text)
    again = download(pin=commit)
    again.run()
    assert content(again) == FILES
    assert hub.downloads("model.safetensors") == 1


def test_an_engine_reads_no_file_of_a_release_that_was_not_downloaded(download: Make) -> None:
    one = download()
    commit = one.run().commit
    snapshot = one.cache.snapshot(commit)
    (snapshot / "model-2.safetensors").write_bytes(b"planted")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").write_bytes(bytes(len(FILES["model.safetensors"])))
    again = download(pin=commit)
    again.run()
    assert content(again) == FILES


def test_no_link_in_the_cache_has_a_download_write_elsewhere(download: Make, hub: FakeHub, tmp_path: Path) -> None:
    one, elsewhere = download(), tmp_path / "elsewhere"
    elsewhere.write_bytes(b"short")
    for file in one.source.release(None).files:
        part = one.cache.folder / "blobs" / f"{file.name}.incomplete"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.symlink_to(elsewhere)
    one.run()
    assert content(one) == FILES
    assert elsewhere.read_bytes() == b"short"


@pytest.mark.parametrize("name", ["{commit}.json", "holder.json"])
def test_a_pipe_in_the_place_of_a_record_or_a_heart_holds_nobody_up(download: Make, name: str) -> None:
    one = download()
    commit = one.run().commit
    (one.cache.own / f"{commit}.json").unlink()
    os.mkfifo(one.cache.own / name.format(commit=commit))
    again = download(pin=commit)
    (thread := Thread(target=again.run, daemon=True)).start()
    thread.join(20)
    assert not thread.is_alive()
    assert content(again) == FILES


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 5000, '{"host": {}}', '{"beat": 1}', "\udcff"])
def test_a_heart_of_nonsense_keeps_nobody_from_a_download(download: Make, text: str) -> None:
    one = download()
    one.cache.own.mkdir(parents=True)
    (one.cache.own / "holder.json").write_text(text, errors="surrogateescape")
    one.run()
    assert content(one) == FILES


def test_a_content_that_is_a_link_to_elsewhere_is_had_anew(download: Make, tmp_path: Path) -> None:
    one = download()
    one.run()
    weights = weights_of(one)
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    again = download()
    again.run()
    assert not weights_of(again).is_relative_to(tmp_path / "elsewhere")
    assert content(again) == FILES


def test_a_container_that_starts_again_has_one_folder_of_links(download: Make) -> None:
    one = download()
    for _ in range(2):
        one.run()
    assert content(one) == FILES
    assert len(list(one.link.parent.iterdir())) == 2


def test_a_release_that_somebody_took_files_from_is_completed(download: Make, hub: FakeHub) -> None:
    one = download()
    one.run()
    (one.link / "model.safetensors").resolve().unlink()
    again = download()
    again.run()
    assert content(again) == FILES


def test_a_throttled_download_is_tried_again(download: Make, hub: FakeHub) -> None:
    hub.throttled = 1
    one = download()
    one.run()
    assert content(one) == FILES


def test_a_hub_that_is_away_is_no_hindrance_where_the_branch_is_known(download: Make, hub: FakeHub) -> None:
    commit = download().run().commit
    hub.away = True
    assert download().run().commit == commit


def test_a_cache_that_was_filled_elsewhere_serves_without_a_network(download: Make, hub: FakeHub) -> None:
    commit = download().run().commit
    shutil.rmtree(download().cache.own)
    hub.away = True
    assert download().run().commit == commit
    pinned = download(pin=commit)
    pinned.run()
    assert content(pinned) == FILES


def test_a_hub_that_is_away_is_an_error_where_nothing_is_known(download: Make, hub: FakeHub) -> None:
    hub.away = True
    with pytest.raises(DownloadError) as caught:
        download().run()
    assert caught.value.reason == "SourceUnreachable"


def test_a_gated_model_without_a_token_says_so(download: Make, hub: FakeHub) -> None:
    hub.token = "right"
    with pytest.raises(DownloadError, match=r"accept its conditions.*spec\.model\.tokenSecretRef") as caught:
        download().run()
    assert caught.value.reason == "ModelUnauthorized"


def test_a_gated_model_with_its_token_is_downloaded(download: Make, hub: FakeHub) -> None:
    hub.token = "right"
    one = download(token="right")
    one.run()
    assert content(one) == FILES


@pytest.mark.parametrize(
    ("repo", "revision", "words"),
    [("org/other", "main", r"no model org/other: check spec\.model\.source"), (REPO, "v9", r"spec\.model\.revision")],
)
def test_a_model_that_is_not_there_names_the_field(
    download: Make, hub: FakeHub, repo: str, revision: str, words: str
) -> None:
    with pytest.raises(DownloadError, match=words) as caught:
        download(source=HubSource(repo, revision, endpoint=hub.url, token="none")).run()
    assert caught.value.reason == "ModelNotFound"


def test_a_disk_too_small_is_known_before_the_first_byte(
    download: Make, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5000))
    with pytest.raises(DownloadError, match=r"0\.0 GB more.*larger claim") as caught:
        download().run()
    assert caught.value.reason == "DiskFull"
    assert hub.asked == []


def test_a_disk_that_fills_up_says_so(download: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DownloadError, match="the cache is full") as caught:
        download().run()
    assert caught.value.reason == "DiskFull"


def test_a_path_that_leaves_its_folder_is_refused(download: Make, hub: FakeHub, tmp_path: Path) -> None:
    hub.model(REPO, {"../../../../escaped": b"x"})
    with pytest.raises(DownloadError, match="not a path inside a folder"):
        download().run()
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize(
    ("paths", "kept"),
    [
        (["a.safetensors", "pytorch_model.bin", "onnx/model.onnx", "x.gguf"], ["a.safetensors"]),
        (["pytorch_model.bin", "config.json"], ["pytorch_model.bin", "config.json"]),
        (["a.safetensors", "tokenizer.model", "modeling.py"], ["a.safetensors", "tokenizer.model", "modeling.py"]),
    ],
)
def test_weights_in_other_formats_stay_at_the_hub(paths: list[str], kept: list[str]) -> None:
    assert [file.path for file in wanted([RemoteFile(path, 1, path) for path in paths])] == kept

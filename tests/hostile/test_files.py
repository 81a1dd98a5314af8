"""Files that others may write: a model's cache, and manifests. What is read of them is right, or refused.

The cache is one that a pod filled; another one changes it, and a third starts. Who can change a file and the record of
its digest together may serve other weights: docs/security.md says so, and no such pair is drawn.
"""

import hashlib
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final

import pytest
from hypothesis import strategies as st
from support.downloads import FILES, content
from support.drawing import NASTY, Drawn, anything, as_json, hostile, loose_texts, texts
from support.odd_manifests import mutated, specs
from support.tried import TRIED

from rewardpool_api import names
from rewardpool_api.documents import write_document
from rewardpool_api.manifest import ManifestError, load_manifest
from rewardpool_runtime.state_files import pool_dir
from rewardpool_worker.engine_side.download.cache import ModelFolder
from rewardpool_worker.engine_side.download.errors import DownloadError
from rewardpool_worker.engine_side.download.lock import DEAD_SECONDS, CacheLock
from rewardpool_worker.engine_side.download.progress import DownloadProgress
from rewardpool_worker.engine_side.download.release import Release, RemoteFile
from rewardpool_worker.engine_side.download.run import DownloadJob

COMMIT: Final = "c" * 40
NAMES: Final = {path: hashlib.sha256(held).hexdigest() for path, held in FILES.items()}
CONFIG, WEIGHTS = NAMES["config.json"], NAMES["model.safetensors"]
OUTSIDE: Final = b"of another folder"
START_SECONDS: Final = 60.0
MOST_WAITS: Final = 40
"""Looks at a lock, after which a process that waits for it would be ended by its own watch."""

# A pod that starts finds what others wrote, whatever that is.


@dataclass(frozen=True)
class Shelf:
    """Stands in for a hub: it has one release."""

    folder = "models--org--rm"
    revision = "main"

    def release(self, commit: str | None) -> Release:
        return Release(COMMIT, tuple(RemoteFile(path, len(held), NAMES[path]) for path, held in FILES.items()))

    def fetch(self, commit: str, file: RemoteFile, target: BinaryIO, offset: int) -> None:
        target.write(FILES[file.path][offset:])

    def digest(self, file: RemoteFile) -> str:
        return f"sha256:{file.name}"


PLACES: Final = (
    *(f"blobs/{CONFIG}", f"blobs/{WEIGHTS}", f"blobs/{CONFIG}.incomplete", f"blobs/{WEIGHTS}.incomplete"),
    *(f"snapshots/{COMMIT}", f"snapshots/{COMMIT}/model.safetensors", f"snapshots/{COMMIT}/planted.py"),
    *("refs/main", f"rewardpool/{COMMIT}.json", "rewardpool/holder.json", "rewardpool/lock"),
    *("blobs", "refs", "rewardpool", "snapshots"),
)
"""Of a model's folder in a cache."""
WHERE: Final = ("{outside}", "{outside}/gone", f"../blobs/{CONFIG}", "..", ".", "/dev/zero", "/proc/self/environ")

odd_records: Final = as_json(
    st.fixed_dictionaries(
        {},
        optional={
            "files": st.one_of(
                anything,
                st.dictionaries(
                    st.one_of(st.sampled_from([*FILES, "planted.py", "../../x", "/etc/passwd"]), loose_texts),
                    st.one_of(
                        anything,
                        st.fixed_dictionaries(
                            {},
                            optional={
                                "name": st.one_of(st.sampled_from([*NAMES.values(), "../x", "a/b"]), loose_texts),
                                "size": st.one_of(st.sampled_from([2, 10240]), anything),
                                "digest": st.one_of(st.sampled_from([f"sha256:{CONFIG}", "md5:", "git:"]), loose_texts),
                            },
                        ),
                    ),
                    max_size=3,
                ),
            ),
            "host": anything,
            "process": anything,
            "beat": anything,
            "report": anything,
        },
    )
)
contents: Final = st.one_of(
    st.binary(max_size=40),
    odd_records.map(lambda text: text.encode(errors="surrogatepass")),
    texts.map(str.encode),
    st.sampled_from([b"[" * 5000, b"9" * 5000, COMMIT.encode(), bytes(2), bytes(10_240), bytes(20_000), b"\xff\xfe"]),
)


def removed(path: Path, content: bytes, target: str) -> None:
    """It is gone."""


def a_file(path: Path, content: bytes, target: str) -> None:
    path.write_bytes(content)


def a_link(path: Path, content: bytes, target: str) -> None:
    path.symlink_to(target)


def a_pipe(path: Path, content: bytes, target: str) -> None:
    os.mkfifo(path)


def a_folder(path: Path, content: bytes, target: str) -> None:
    path.mkdir()


CHANGES: Final[Mapping[str, Callable[[Path, bytes, str], None]]] = {
    "removed": removed,
    "other files": a_file,
    "links": a_link,
    "pipes": a_pipe,
    "folders": a_folder,
}
Change = tuple[str, str, bytes, str]
change: Final = st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from(PLACES), contents, st.sampled_from(WHERE))


def changed(starts: "Starts", kind: str, place: str, content: bytes, target: str) -> bool:
    """Whether the cache was changed so; a link of a whole folder of it leads nowhere that a pod has."""
    path = starts.folder / place
    if kind == "links" and "/" not in place:
        return False
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        CHANGES[kind](path, content, target.format(outside=starts.outside))
    except OSError:  # an earlier change took the folder that it would be in
        return False
    return True


class Starts:
    """Pods that start on one claim, each with a folder of its own."""

    def __init__(self, place: Path) -> None:
        self.claim, self.outside = place / "claim", place / "outside"
        self.outside.write_bytes(OUTSIDE)
        self._pods = itertools.count()
        self._place = place
        self.begin(pin=None)
        self._filled = place / "filled"
        shutil.copytree(self.claim, self._filled, symlinks=True)

    @property
    def folder(self) -> Path:
        return self.claim / Shelf.folder

    def restore(self) -> None:
        shutil.rmtree(self.claim)
        shutil.copytree(self._filled, self.claim, symlinks=True)

    def begin(self, *, pin: str | None) -> dict[str, bytes]:
        """What a new pod's engine would read; raises what the download does."""
        number = next(self._pods)
        cache, waits = ModelFolder(self.folder), itertools.count()
        clock = itertools.count(step=int(DEAD_SECONDS) + 1)

        def wait(*_: object) -> None:
            if next(waits) >= MOST_WAITS:
                raise DownloadError("DownloadStalled", "nothing moved")

        pod = self._place / f"pod-{number}"
        download = DownloadJob(
            source=Shelf(),
            cache=cache,
            lock=CacheLock(cache.own, host=f"pod-{number}", process="1", clock=lambda: next(clock), sleep=wait),
            progress=DownloadProgress(),
            pinned=lambda: pin,
            link=pod / "current",
            wait=wait,
        )
        try:
            download.run()
            return content(download)
        finally:
            shutil.rmtree(pod, ignore_errors=True)


def ended(starts: Starts, pin: str | None) -> dict[str, bytes] | Exception | None:
    """What the engine would read, or why nothing; None for a start that hangs."""
    found: list[dict[str, bytes] | Exception] = []

    def start() -> None:
        try:
            found.append(starts.begin(pin=pin))
        except Exception as error:  # the test says which ones there may be
            found.append(error)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    thread.join(START_SECONDS)
    return found[0] if found else None


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    """In memory where there is room for that: on a disk, removing the cache takes longer than what is tried."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Starts(Path(folder))


def test_no_change_of_a_shared_cache_gives_an_engine_other_files_or_ends_a_start_without_a_reason(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # most of the time of a start

    @hostile(
        "shared caches",
        changes=st.lists(change, min_size=1, max_size=3),
        pin=st.sampled_from([COMMIT, None]),
    )
    def judge(changes: list[Change], pin: str | None) -> None:
        starts.restore()
        for one in changes:
            if changed(starts, *one):
                TRIED[f"of a cache: {one[0]}"] += 1
        outcome = ended(starts, pin)
        # The program reports both kinds of errors by a reason and a sentence.
        assert outcome == FILES or isinstance(outcome, (DownloadError, OSError)), outcome
        assert starts.outside.read_bytes() == OUTSIDE

    judge()


# A manifest of somebody else is a pool, or refused in words.


def rarely(odd: Drawn, good: Drawn, *, of: int = 10) -> Drawn:
    """Odd once of so many times."""
    return st.integers(1, of).flatmap(lambda number: good if number > 1 else odd)


odd_names: Final = st.one_of(
    st.sampled_from([*NASTY, "..", "../../outside", "a/b", "/etc", "RL", "rl", "skywork"]), texts, anything
)


@st.composite
def manifests(draw: Any) -> bytes:
    """Bytes of which most are YAML or JSON, and some a pool."""
    metadata = {
        "name": draw(rarely(odd_names, st.just("skywork"))),
        "namespace": draw(rarely(odd_names, st.just("rl"))),
    }
    spec = draw(rarely(st.one_of(mutated(specs()), specs()), st.sampled_from(SPECS), of=50))  # a drawn one takes long
    pool = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}
    text = draw(
        st.one_of(
            as_json(st.just(pool)),
            as_json(st.just(pool)),
            as_json(anything),
            loose_texts,
            st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
            st.just(pool).map(written),
        )
    )
    return bytes(draw(rarely(st.binary(max_size=60), st.just(text.encode(errors="surrogatepass")))))


SPECS: Final = (
    {"model": {"source": "hf://org/model"}},
    {"model": {"source": "python://rewards:score", "type": "Function"}, "replicas": 2},
    {"model": {"source": "file:///../../etc"}, "worker": {"podTemplate": {"spec": None}}},
    {"model": None},
)
PIECES: Final = (
    *("a: ", "b", "- ", "\n", "\n  ", "{", "}", "[", "]", "&x ", "*x", "<<: ", "? ", "| ", "> ", "---\n", "...\n"),
    *("!!python/object/apply:os.system [id]", "!!binary ", "!!set ", "!x ", "%YAML 9.9\n", "'", '"', "\t", "#", "\x00"),
    *("kind: RewardPool\n", "metadata: {name: ../../x}\n", "spec: ", "&a [*a]", "{<<: *x}", "0x", "1e999", "~"),
)


def written(pool: dict[str, Any]) -> str:
    try:
        return write_document(pool)
    except ValueError:  # what YAML cannot say
        return repr(pool)


@hostile("manifests as files", content=manifests())
def test_a_manifest_is_a_pool_with_a_folder_of_its_own_or_refused_in_words(content: bytes) -> None:
    try:
        pool = load_manifest(content)
    except ManifestError:
        return
    TRIED["of them pools"] += 1
    folder = pool_dir({names.ENV_STATE_DIR: "/state"}, pool.metadata.namespace, pool.metadata.name)
    assert os.path.normpath(folder) == str(folder)
    assert folder.parent.parent == Path("/state")

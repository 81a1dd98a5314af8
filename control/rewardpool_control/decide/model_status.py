"""The model's files: which commit the pool is of, and how far the workers are with having it.

The numbers of a download are reported every few seconds and not at every pass: the status that has them is their
memory.
"""

from datetime import timedelta
from typing import Final

from rewardpool_api.status import MAX_REVISIONS, CertificateStatus, DownloadStatus, ModelStatus, RevisionModel
from rewardpool_control.snapshot import Download, Snapshot, Worker

REPORTED_EVERY: Final = timedelta(seconds=5)


def model_status(snapshot: Snapshot, staying: list[Worker]) -> ModelStatus:
    """The model as it is served, and as it comes."""
    lengths = [worker.max_model_len for worker in staying if worker.max_model_len is not None]
    before = snapshot.pool.status.model
    return ModelStatus(
        type=snapshot.pool.spec.model.type,
        engine=snapshot.pool.spec.engine.name,
        served_name=snapshot.pool.served_name,
        adapters=_adapters(snapshot),
        # The shortest, while a rollout changes it; the last known one while nobody answers.
        max_model_len=min(lengths) if lengths else before.max_model_len if before else None,
        commit=_commit(snapshot),
        revisions=_revisions(snapshot),
        certificate=_certificate(snapshot, staying),
        download=_download(snapshot, staying),
    )


def _certificate(snapshot: Snapshot, staying: list[Worker]) -> CertificateStatus | None:
    """Return the least certain worker's certificate; the last known one while no worker reports any."""
    before, model_type = snapshot.pool.status.model, snapshot.pool.spec.model.type
    found = [worker.certificate for worker in staying if worker.certificate is not None]
    is_heard = bool(found) or any(worker.probe_score is not None for worker in staying)
    if not is_heard and before is not None and before.type == model_type:
        return before.certificate
    return max(found, key=lambda one: (one.outcome == "NotCertified", one.max_abs_diff or 0.0), default=None)


def _revisions(snapshot: Snapshot) -> list[RevisionModel]:
    """Return the models of the revisions that have workers or may get them; of others than the present one, the known
    ones.
    """
    before = snapshot.pool.status
    known = {one.revision: one for one in before.model.revisions} if before.model else {}
    kept = {worker.revision for worker in snapshot.workers}
    if before.rollout is not None:
        kept |= {before.rollout.target_revision, before.rollout.stable_revision or ""}
    others = [one for name, one in known.items() if name in kept and name != snapshot.revision]
    present = _present(snapshot, known.get(snapshot.revision))
    return [_as_reported(one, snapshot) for one in (present, *others)][:MAX_REVISIONS]


def _present(snapshot: Snapshot, known: RevisionModel | None) -> RevisionModel:
    pool, head = snapshot.pool, snapshot.pool.spec.model.head
    return RevisionModel(
        revision=snapshot.revision,
        source=pool.spec.model.source,
        commit=_commit(snapshot),
        served_name=pool.served_name,
        tokenizer=known.tokenizer if known else None,
        max_model_len=known.max_model_len if known else None,
        head=head.type if head else None,
        step_token=head.step_token if head else None,
        dtype=pool.spec.engine.dtype,
    )


def _as_reported(one: RevisionModel, snapshot: Snapshot) -> RevisionModel:
    """The same with what its workers say; those that do not answer change nothing."""
    workers = snapshot.workers_of(one.revision)
    lengths = [worker.max_model_len for worker in workers if worker.max_model_len is not None]
    tokenizers = sorted({worker.tokenizer for worker in workers if worker.tokenizer is not None})
    said = {"max_model_len": min(lengths)} if lengths else {}
    # Where a folder was changed under workers, some have what it was: what is known stays as long as one says it.
    if tokenizers and one.tokenizer not in tokenizers:
        return one.model_copy(update={**said, "tokenizer": tokenizers[0]})
    return one.model_copy(update=said)


def in_words(download: DownloadStatus) -> str:
    """The download for people."""
    workers = "1 worker" if download.workers == 1 else f"{download.workers} workers"
    text = f"{download.phase.lower()} the model in {workers}"
    if download.phase == "Waiting":
        text = f"{workers} waiting for another one's download of the model"
    if download.total_bytes is not None:
        text += f": {download.downloaded_bytes / 1e9:.1f} of {download.total_bytes / 1e9:.1f} GB"
    return f"{text}; {download.note}" if download.note else text


def _adapters(snapshot: Snapshot) -> list[str] | None:
    """Those that every worker has: while a rollout changes them, the ones that there were before and will be."""
    before, names = snapshot.pool.status.model, snapshot.pool.adapter_names
    if all(worker.revision == snapshot.revision for worker in snapshot.workers):
        return list(names) or None
    return [name for name in names if before is not None and name in (before.adapters or ())] or None


def _commit(snapshot: Snapshot) -> str | None:
    """Return the commit of the present revision, by its first worker, for as long as it is the present one."""
    before = snapshot.pool.status
    if before.current_revision == snapshot.revision and before.model is not None and before.model.commit is not None:
        return before.model.commit
    workers = sorted(snapshot.workers_of(snapshot.revision), key=lambda worker: (worker.created, worker.name))
    return next((worker.download.commit for worker in workers if worker.download and worker.download.commit), None)


def _download(snapshot: Snapshot, staying: list[Worker]) -> DownloadStatus | None:
    downloads = [worker.download for worker in staying if worker.download is not None and worker.is_downloading]
    if not downloads:
        return None
    least = min(downloads, key=_share)
    if least.phase == "Done":
        return None
    before = snapshot.pool.status.model.download if snapshot.pool.status.model else None
    same = before is not None and (before.phase, before.workers) == (least.phase, len(downloads))
    if before is not None and same and snapshot.now - before.time < REPORTED_EVERY:
        return before
    return DownloadStatus(
        phase=least.phase,
        downloaded_bytes=least.downloaded_bytes,
        total_bytes=least.total_bytes,
        note=least.note,
        workers=len(downloads),
        time=snapshot.now,
    )


def _share(download: Download) -> float:
    return download.downloaded_bytes / download.total_bytes if download.total_bytes else 0.0

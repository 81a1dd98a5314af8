"""Models of the Hugging Face hub, or of a mirror of it ($HF_ENDPOINT), with the client library that the image has.

The library finds files and their digests, follows redirects, and tries again. Where a file goes and how a broken one is
gone on with is ours: since version 2 the library begins a file anew for every process, and leaves the old part behind.
"""

import re
from typing import BinaryIO

import huggingface_hub
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import hf_hub_url, http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from rewardpool_worker.engine_side.download.errors import PASSING_ATTEMPTS, DownloadError, disk_error
from rewardpool_worker.engine_side.download.release import Release, RemoteFile

# Of everything that the HTTP client below the library raises: requests', httpx' or httpx2's, by its version.
_TRANSPORT: type[Exception] = HfHubHTTPError.__bases__[0]
_OTHER_WEIGHTS = re.compile(
    r"(^|/)(pytorch_model|tf_model|flax_model|rust_model)[^/]*$|\.(h5|msgpack|ot|onnx|onnx_data|gguf|tflite|pth|ckpt|pt)$"
    r"|^(original|onnx|openvino|coreml)/"
)


class HubSource:
    """One repository of the hub at one revision."""

    def __init__(self, repo: str, revision: str, *, endpoint: str | None = None, token: str | None = None) -> None:
        """Ask nothing yet.

        Args:
            repo: `ORG/NAME`.
            revision: branch, tag or commit.
            endpoint: of the hub; None for $HF_ENDPOINT or the public one.
            token: None for $HF_TOKEN or none.
        """
        self.repo = repo
        self.revision = revision
        self._endpoint = endpoint
        self._token = token
        self._digests: dict[str, str] = {}

    @property
    def folder(self) -> str:
        return f"models--{self.repo.replace('/', '--')}"

    def release(self, commit: str | None) -> Release:
        """All files of the commit, or of what the revision is now."""
        api = huggingface_hub.HfApi(endpoint=self._endpoint, token=self._token)
        try:
            info = api.model_info(self.repo, revision=commit or self.revision, files_metadata=True)
        except (_TRANSPORT, OSError, ValueError) as error:
            raise self._explained(error) from error
        files = []
        for entry in info.siblings or []:
            digest = f"sha256:{entry.lfs.sha256}" if entry.lfs else f"git:{entry.blob_id}"
            name = digest.partition(":")[2]
            self._digests[name] = digest
            files.append(RemoteFile(entry.rfilename, entry.size or 0, name))
        return Release(str(info.sha), tuple(wanted(files)))

    def digest(self, file: RemoteFile) -> str | None:
        return self._digests[file.name]

    def fetch(self, commit: str, file: RemoteFile, target: BinaryIO, offset: int) -> None:
        url = hf_hub_url(self.repo, file.path, revision=commit, endpoint=self._endpoint)
        headers = build_hf_headers(token=self._token)
        try:
            http_get(url, target, resume_size=offset, headers=headers, expected_size=file.size)
        except (_TRANSPORT, OSError, ValueError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> DownloadError:
        full = disk_error(error) if isinstance(error, OSError) else None
        status = getattr(getattr(error, "response", None), "status_code", None)
        token = "check the token in spec.model.tokenSecretRef"  # noqa: S105 - advice, not a token
        if full is not None:
            return full
        if isinstance(error, OfflineModeIsEnabled):
            return DownloadError(
                "SourceUnreachable", "HF_HUB_OFFLINE is set in spec.engine.env, so the hub is not asked"
            )
        if isinstance(error, GatedRepoError) or status == 403:
            return DownloadError(
                "ModelUnauthorized",
                f"the hub does not give out {self.repo}: accept its conditions on its page, and {token}",
            )
        if isinstance(error, RevisionNotFoundError):
            message = f"{self.repo} has no revision {self.revision}: check spec.model.revision"
            return DownloadError("ModelNotFound", message)
        if isinstance(error, RepositoryNotFoundError):
            return DownloadError(
                "ModelNotFound",
                f"the hub shows no model {self.repo}: check spec.model.source; if it is private, {token}",
            )
        if status == 401:
            return DownloadError("ModelUnauthorized", f"the hub refuses the token for {self.repo}: {token}")
        if status == 429:
            wait = error.response.headers.get("Retry-After", "")  # type: ignore[attr-defined]
            return DownloadError(
                "DownloadThrottled",
                "the hub answers 429, too many requests",
                attempts=PASSING_ATTEMPTS,
                wait_seconds=float(wait) if wait.isdigit() else None,
            )
        if status is not None and status < 500:
            return DownloadError("ModelNotFound", f"the hub answers {status} for {self.repo}")
        what = f"answers {status}" if status else f"cannot be reached ({type(error).__name__}: {error})"
        return DownloadError("SourceUnreachable", f"the hub {what}", attempts=PASSING_ATTEMPTS)


def wanted(files: list[RemoteFile]) -> list[RemoteFile]:
    """The files that an engine reads: where there are safetensors, weights in other formats are left out."""
    if not any(file.path.endswith(".safetensors") for file in files):
        return files
    return [file for file in files if not _OTHER_WEIGHTS.search(file.path)]

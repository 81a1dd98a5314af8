"""Start of a worker on one machine: its command, and the revision that makes it."""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rewardpool_api import RewardPool, names, parse_source
from rewardpool_api.source import is_function
from rewardpool_api.worker import WorkerSpec
from rewardpool_local.folder import PoolFolder
from rewardpool_local.gpus import counted
from rewardpool_local.machine import folders_of
from rewardpool_local.supervised_process import Command
from rewardpool_runtime.listeners import HOST, HeldPort
from rewardpool_worker.engines import Launch, LaunchTarget, engine_for
from rewardpool_worker.engines.launch import LINK, adapter_path

LONGEST_PLACE: Final = 64  # characters: Linux takes 107 of a socket, whose name is a UUID


def revision_of(pool: RewardPool) -> str:
    """Eight characters that stand for how workers are started; a spec that starts them alike has the same."""
    # Another time to drain is no reason to load a model anew: workers that start from then on have it.
    worker = pool.spec.worker.model_copy(update={"drain_seconds": WorkerSpec().drain_seconds})
    spec = pool.spec.model_copy(update={"worker": worker})
    target = LaunchTarget(
        served_name=pool.served_name, host=HOST, port=0, key_file=_key_of(pool, "key"), is_pod=False, sleeps=True
    )
    start = engine_for(pool.spec.engine.name).launch(spec, target)
    annotations = pool.metadata.annotations
    marks = [annotations.get(name, "") for name in (names.ANNOTATION_CODE, names.ANNOTATION_RESTARTED_AT)]
    text = json.dumps([start.argv, sorted(start.env.items()), counted(pool.spec), marks])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """Settings by which workers are started."""

    python: str
    folder: PoolFolder

    def command(self, pool: RewardPool, *, name: str, gpus: Mapping[str, str]) -> Command:
        """Starts a worker of this pool on a port that is free now.

        Args:
            name: Its name, by which it finds what was downloaded for it.
            gpus: Variables that name its GPUs; they win over those of `spec.engine.env`.

        Raises:
            CodeGoneError: the copy of its function's code is gone.
        """
        code = pool.metadata.annotations.get(names.ANNOTATION_CODE)
        originals = self.folder.code.originals(code) if code is not None else {}
        port = HeldPort()
        launch = self._launch(pool, port.number, name=name, copies=tuple(originals))
        if not is_function(pool.spec.model.source):
            port.lend()
        # A revision is the hash of how a worker is started, so it cannot be part of that.
        env = {**launch.env, **gpus, names.ENV_REVISION: revision_of(pool), names.ENV_WORKER: name}
        return Command(
            argv=launch.argv, env=env, url=f"http://{HOST}:{port.number}", ports=(port,), originals=originals
        )

    def _launch(self, pool: RewardPool, port: int, *, name: str, copies: Sequence[str]) -> Launch:
        serves_function = is_function(pool.spec.model.source)
        place = self.folder.models / name
        target = LaunchTarget(
            # -P: else the folder that the command was run in would be before all others.
            python=(sys.executable, "-P") if serves_function else (self.python,),
            served_name=pool.served_name,
            host=HOST,
            port=port,
            files_dir=str(self.folder.files),
            key_file=_key_of(pool, str(self.folder.key_file)),
            is_pod=False,
            sleeps=True,
            modules_dir=None,
            download_dir=f"{place}/{LINK}" if parse_source(pool.spec.model.source).is_downloaded else None,
            adapters_dir=f"{place}/adapters",
        )
        launch = engine_for(pool.spec.engine.name).launch(pool.spec, target)
        if not serves_function:
            launch = self._with_downloads(launch, pool, target)
            launch = replace(launch, env={**_sockets(pool, self.folder), **launch.env})
            # An engine is three processes that import the same 4,000 modules: 8 s of a CPU each with byte code, 16 s
            # without. So it may keep byte code in its own installation where the user has switched that off.
            return replace(launch, env={"PYTHONDONTWRITEBYTECODE": "", **launch.env})
        # For the function's own processes alone: a file there may be called like a module that the server imports.
        modules = os.pathsep.join([*copies, *map(str, folders_of(pool))])
        env = {name: value for name, value in {**_temporary(self.folder), **launch.env}.items() if name != "PYTHONPATH"}
        return replace(launch, argv=(*launch.argv, "--shared-port", "--modules", modules), env=env)

    def _with_downloads(self, launch: Launch, pool: RewardPool, target: LaunchTarget) -> Launch:
        """The engine's start with the downloads of model and adapters before it, each of which becomes the next."""
        spec = pool.spec
        wanted = [(spec.model.source, spec.model.revision, target.download_dir)]
        wanted += [(one.source, one.revision or "", adapter_path(one, target)) for one in spec.model.adapters]
        for source, revision, link in reversed(wanted):
            if link is None or not parse_source(source).is_downloaded:
                continue
            download = (self.python, target.program, "download.program", "--source", source, "--revision", revision)
            kept = ("--link", link, "--records", str(self.folder.records))
            launch = replace(launch, argv=(*download, *kept, "--then", *launch.argv))
        if launch.argv[1:3] != (target.program, "download.program") or "HF_HUB_OFFLINE" in spec.engine.variables:
            return launch
        # It is the download that sets it for what it becomes.
        return replace(launch, env={key: value for key, value in launch.env.items() if key != "HF_HUB_OFFLINE"})


def _sockets(pool: RewardPool, folder: PoolFolder) -> Mapping[str, str]:
    """The variable that puts an engine's sockets into the pool's folder: one that is killed leaves them behind."""
    variable = engine_for(pool.spec.engine.name).sockets_variable
    place = str(folder.temporary)
    return {variable: place} if variable is not None and len(place) <= LONGEST_PLACE else {}


def _temporary(folder: PoolFolder) -> Mapping[str, str]:
    """The variable of a function's folder for temporary files, where the usual one is on the way to the pool's key."""
    return {"TMPDIR": str(folder.temporary)} if Path(tempfile.gettempdir()) in folder.path.parents else {}


def _key_of(pool: RewardPool, file: str) -> str | None:
    return file if pool.spec.router.auth.uses_key else None

"""Two versions on one machine: client and pool of different ones, and an installation that is changed below a pool."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from cluster.folders import REPOSITORY
from cluster.processes import Daemon, kill, wait_until
from faults.tally import TrafficLog
from first_minute import StepError, Steps, user_environment
from rehearsal.later_version import RENAMED
from rehearsal.packages import Index, Packages
from rehearsal.streams import Changes, Row
from rewardpool_api import names

WHERE: Final = "one machine"
POOL: Final = "rehearsal"
RATE: Final = 20.0
STEADY_SECONDS: Final = 4.0
"""Of streaming with nothing changed, after which something else would have shown."""


@dataclass
class Machine:
    """A pool of this machine by one installation, and a job that streams to it by another."""

    folder: Path
    steps: Steps
    _runs: int = field(default=0)

    def __post_init__(self) -> None:
        project = self.folder / "faults"
        project.mkdir(parents=True)
        (project / "__init__.py").touch()
        for module in ("reward", "traffic"):
            shutil.copy(REPOSITORY / "e2e" / "faults" / f"{module}.py", project)

    def rewardpool(self, environment: Path, *words: str) -> str:
        """What the command line of an installation prints.

        Raises:
            StepError: It failed.
        """
        variables = user_environment(os.environ, programs=environment / "bin", state=self.folder / "state")
        program = environment / "bin" / "rewardpool"
        name = f"{environment.name}: rewardpool {words[0]}"
        return self.steps.run(name, program, *words, cwd=self.folder, env=variables)

    def manifest(self, router: dict[str, Any]) -> str:
        """The name of a file with a pool of two workers, whose `spec.router` is this."""
        spec = {"model": {"source": "python://faults.reward:compute_score"}, "replicas": 2, "router": router}
        spec["worker"] = {"drainSeconds": 10}
        pool = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": POOL}, "spec": spec}
        (self.folder / "pool.yaml").write_text(yaml.safe_dump(pool))
        return "pool.yaml"

    @contextmanager
    def pool(self, environment: Path) -> Iterator[None]:
        """The pool, as long as the context is open."""
        self.rewardpool(environment, "up", "-f", self.manifest({}), "--detach")
        try:
            yield
        finally:
            self.rewardpool(environment, "down", POOL)

    def workers(self) -> frozenset[str]:
        """The processes of the pool's workers."""
        published = json.loads((self.folder / "state" / "default" / POOL / names.STATE_FILE).read_text())
        return frozenset(str(worker["pid"]) for worker in published["status"]["workers"])

    @contextmanager
    def job(self, environment: Path) -> Iterator[TrafficLog]:
        """A job that streams as long as the context is open; afterwards all that it asked for was answered."""
        self._runs += 1
        out = self.folder / f"traffic-{self._runs}"
        out.mkdir()
        python, options = environment / "bin" / "python", [f"default/{POOL}", str(out), f"--rate={RATE:g}"]
        variables = {"PYTHONPATH": str(self.folder), names.ENV_STATE_DIR: str(self.folder / "state")}
        variables["KUBECONFIG"] = str(self.folder / "none")
        job = Daemon("job", [python, "-m", "faults.traffic", *options], log=out / "log", environment=variables)
        log = TrafficLog(out)
        try:
            wait_until(lambda: log.flows, what="samples are scored", deadline_seconds=60, daemons=[job])
            yield log
            job.terminate()
            job.join()
        finally:
            kill([job])


def rows(
    index: Index, packages: Packages, clients: Mapping[str, Path], folder: Path, *, short: bool
) -> tuple[list[Row], dict[str, str]]:
    """Stream to a pool of the other version, both ways; then change the installation below a pool, and back.

    The `short` form leaves out the way back, and another wire contract, which other tests have.

    Returns:
        What became of the samples, and what is said where the two ends do not fit together.
    """
    made, now, later = folder / "environments", packages.now, packages.later
    pools = {
        one: index.make(made / f"pool-{one}", sys.executable, f"rewardpool[router]=={one}") for one in (now, later)
    }
    machine = Machine(folder / "machine", index.steps)
    found: list[Row] = []
    said: dict[str, str] = {}
    for server, client in ((now, later), (later, now)):
        changes = Changes(WHERE)
        with machine.pool(pools[server]):
            with (
                machine.job(clients[client]) as log,
                changes.during("nothing", server=server, workers=machine.workers),
            ):
                time.sleep(STEADY_SECONDS)
            if client == later and not short:
                said["other_wire"] = _refused_wire(machine, clients[client])
        found += changes.rows(client, log)
    versions = [later] if short else [later, now]
    found += _in_place(index, machine, pools[now], versions, job=(now, clients[now]))
    said["renamed_field"] = _refused_field(machine, pools[later])
    return found, said


def _refused_wire(machine: Machine, client: Path) -> str:
    """What a client says that speaks another version of the wire contract than the pool's workers.

    Raises:
        StepError: It scores all the same, or says something else.
    """
    [contract] = client.glob("lib/python3*/site-packages/rewardpool_api/contract.py")
    text = contract.read_text()
    try:
        # Not written over: the installer may have linked it to its cache.
        contract.unlink()
        contract.write_text(text.replace("\nWIRE_VERSION = 1\n", "\nWIRE_VERSION = 2\n"))
        machine.rewardpool(client, "score", "a text", "--pool", f"default/{POOL}")
    except StepError as error:
        if "of the wire contract" not in str(error):
            raise
        return str(error)
    finally:
        contract.write_text(text)
    raise StepError("a client of another wire contract than the workers scored a sample")


def _in_place(
    index: Index, machine: Machine, environment: Path, versions: Iterable[str], *, job: tuple[str, Path]
) -> list[Row]:
    """Another version is installed into the environment that a pool runs from: workers that start then are of it."""
    changes, (client, installation) = Changes(WHERE), job
    with machine.pool(environment):
        with machine.job(installation) as log:
            for version in versions:
                with changes.during("pip install below the pool", server=version, workers=machine.workers):
                    index.install(environment, f"rewardpool=={version}", "--no-deps")
                    time.sleep(STEADY_SECONDS)
                with changes.during("rewardpool scale, a worker beside", server=version, workers=machine.workers):
                    machine.rewardpool(environment, "scale", POOL, str(len(machine.workers()) + 1))
                with changes.during("rewardpool restart", server=version, workers=machine.workers, asked=True):
                    machine.rewardpool(environment, "restart", POOL)
        return changes.rows(client, log)


def _refused_field(machine: Machine, environment: Path) -> str:
    """What the later version says of a manifest with the field that it has under another name.

    Raises:
        StepError: It takes it.
    """
    try:
        machine.rewardpool(environment, "up", "-f", machine.manifest({RENAMED: 30}), "--detach")
    except StepError as error:
        return str(error)
    raise StepError(f"the later version takes spec.router.{RENAMED}, which it does not have")

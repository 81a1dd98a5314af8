"""What this machine has for pods to mount: the virtual environments, and the quick start with its models."""

import subprocess
from pathlib import Path

from cluster.folders import REPOSITORY
from cluster.processes import output_of
from cluster.progress import Say
from overlay import Environment

QUICKSTART = REPOSITORY / "examples" / "quickstart"
MODELS = Path("/var/tmp/rewardpool/quickstart")
VENVS = REPOSITORY / ".rewardpool" / "venvs"

ENGINE_IMAGE = "localhost/rewardpool-engine:e2e"
ENGINE_CONTAINER_FILE = "e2e/Containerfile.engine"


def environment(name: str) -> Environment:
    """A virtual environment made by `make setup`, and the Python behind it."""
    folder = VENVS / name
    base = output_of(folder / "bin" / "python", "-c", "import sys; print(sys.base_prefix)")
    return Environment(folder=folder, base=Path(base.strip()))


def mounts() -> list[Path]:
    """All that pods mount."""
    folders = [REPOSITORY, MODELS, *environment("server").folders, *environment("trainer").folders]
    return list(dict.fromkeys(folders))


def make_models(say: Say) -> None:
    """Make the quick start's models, where they are not there yet."""
    say(f"making the quick start's models in {MODELS}, unless they are there")
    run_in_trainer(QUICKSTART / "models.py")


def run_in_trainer(*command: str | Path, deadline_seconds: float = 600.0) -> None:
    """Run a program by the Python that has torch and transformers; raises `subprocess.SubprocessError`."""
    python = VENVS / "trainer" / "bin" / "python"
    subprocess.run([python, *command], stdin=subprocess.DEVNULL, check=True, timeout=deadline_seconds)

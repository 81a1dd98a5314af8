"""A pod that asks, with the folder that it writes to."""

from pathlib import Path
from typing import Self

from autoscaling.manifests import Manifest
from faults.tally import Tally, TrafficLog, count
from scene import Object, Scene, StoryError


class Asking:
    """One of them; `start` makes both."""

    def __init__(self, scene: Scene, *, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._scene = scene

    @classmethod
    def start(cls, scene: Scene, manifest: Manifest, *, folder: Path, **files: str) -> Self:
        """Make the folder, with these files in it, and the pod."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)  # the pod is not root
        for earlier in folder.iterdir():
            earlier.unlink()
        for stem, text in files.items():
            (folder / f"{stem}.json").write_text(text)
        scene.apply(manifest)
        return cls(scene, name=manifest["metadata"]["name"], folder=folder)

    def phase(self) -> str:
        """What Kubernetes says of it."""
        phase = self._scene.phase(self.name)
        if phase == "Failed":
            raise StoryError(f"pod {self.name} failed:\n{self._scene.kubectl('logs', self.name, '--tail=20')}")
        return phase

    def object(self) -> Object:
        """The pod as Kubernetes has it."""
        (found,) = (pod for pod in self._scene.objects("pods") if pod["metadata"]["name"] == self.name)
        return found

    def tally(self, samples: int) -> Tally:
        """What became of so many samples, from the first on."""
        return count(range(samples), TrafficLog(self.folder).answers())

"""The client while two real routers with different keys stand behind one address, its own key file late as well."""

import asyncio
from pathlib import Path

import pytest
from support.fleet import FLAVORS, Fleet, eventually
from support.reward_functions import expected_score
from support.stand_in_service import Endpoints, StandInService

from rewardpool import FunctionSample, Pool, RewardConfig, Sample, Scored
from rewardpool_api import names
from rewardpool_api.pool import RouterFlavor

pytestmark = [pytest.mark.real, pytest.mark.parametrize("flavor", FLAVORS)]

OLD, NEW = "the-old-key-of-the-pool", "the-new-key-of-the-pool"


def write_keys(folder: Path, **keys: str) -> None:
    """As a kubelet renews a mounted Secret: these entries and no others."""
    folder.mkdir(exist_ok=True)
    for name in names.KEY_NAMES:
        path = folder / name
        if key := keys.get(name.replace("-", "_")):
            path.with_suffix(".fresh").write_text(key)
            path.with_suffix(".fresh").replace(path)
        else:
            path.unlink(missing_ok=True)


class Rotation:
    """Every stage of a rotation: which routers stand behind the address, and which keys lie where."""

    def __init__(self, folder: Path, old: Fleet, new: Fleet) -> None:
        self._workers, self._trainer = old.key_file.parent, folder / "trainer"
        self._old, self._new = old, new
        self.key_file = self._trainer / "key"
        self.behind = [old]
        write_keys(self._trainer, key=OLD)

    def endpoints(self) -> Endpoints:
        return [("127.0.0.1", fleet.router.port) for fleet in self.behind]

    async def run(self, scored: list[bool]) -> None:
        """One stage after the other, each for as long as it takes to score some dozen samples."""
        await some(scored)
        write_keys(self._workers, key=OLD, next_key=NEW)
        await some(scored)
        write_keys(self._workers, key=NEW, previous_key=OLD)
        self.behind = [self._old, self._new]
        await some(scored)
        write_keys(self._trainer, key=NEW, previous_key=OLD)
        await some(scored)
        self.behind = [self._new]
        self._old.router.kill()
        await some(scored)
        write_keys(self._trainer, key=NEW)
        write_keys(self._workers, key=NEW)
        await some(scored)


async def some(scored: list[bool]) -> None:
    wanted = len(scored) + 60

    async def enough() -> bool:
        return len(scored) >= wanted

    await eventually(enough, what=f"{wanted} samples were tried")


async def test_a_rotation_costs_no_sample(tmp_path: Path, flavor: RouterFlavor) -> None:
    for part in ("old", "new"):
        (tmp_path / part).mkdir()
    async with Fleet(tmp_path / "old", workers=2, key=OLD, flavor=flavor) as old:
        write_keys(tmp_path / "old", key=OLD, next_key=NEW)
        others = [worker.url for worker in old.workers]
        async with Fleet(tmp_path / "new", workers=0, others=others, key=NEW, flavor=flavor) as new:
            write_keys(tmp_path / "old", key=OLD)
            rotation = Rotation(tmp_path, old, new)
            with StandInService(rotation.endpoints) as service:
                config = RewardConfig(url=service.url, key_file=rotation.key_file, concurrency=8, on_failure="skip")
                async with Pool(config) as pool:
                    scored = await scores_during(rotation, pool)
                    report = pool.report()
    assert all(scored)
    assert (report.unscored, report.scored) == (0, len(scored))
    assert report.retries["unauthorized"] > 0


async def scores_during(rotation: Rotation, pool: Pool) -> list[bool]:
    """Whether each sample got the right score, for as long as the rotation takes."""
    scored: list[bool] = []
    stages = asyncio.create_task(rotation.run(scored))

    async def score() -> None:
        while not stages.done():
            text = f"solution {len(scored)}"
            function = FunctionSample(
                data_source="test", solution_str=text, ground_truth=None, extra_info={"seconds": 0.02}
            )
            outcome = await pool.outcome(Sample(function=function))
            scored.append(isinstance(outcome, Scored) and outcome.value == pytest.approx(expected_score(text)))

    await asyncio.gather(stages, *(score() for _ in range(8)))
    return scored

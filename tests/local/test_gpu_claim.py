"""Who has GPUs that a pool shares with trainers, by one locked file."""

import fcntl
from pathlib import Path

from rewardpool_local.gpu_claim import GpuClaim


def test_engines_may_have_the_gpus_unless_a_rank_computes(tmp_path: Path) -> None:
    claim = GpuClaim(tmp_path / "gpu")
    (tmp_path / "gpu").touch()
    with (tmp_path / "gpu").open("rb") as rank:
        fcntl.flock(rank, fcntl.LOCK_SH)
        assert not claim.renew(needed=True)
    assert claim.renew(needed=True)
    assert claim.renew(needed=True)


def test_a_claim_that_is_not_needed_is_let_go(tmp_path: Path) -> None:
    claim, other = GpuClaim(tmp_path / "gpu"), GpuClaim(tmp_path / "gpu")
    assert claim.renew(needed=True)
    assert not other.renew(needed=True)
    assert claim.renew(needed=False)
    assert other.renew(needed=True)

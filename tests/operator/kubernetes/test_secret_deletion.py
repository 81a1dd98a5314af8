"""An object that names the Secrets among its owners."""

from rewardpool_operator.kubernetes.credentials.secret_deletion import shows_a_deletion, with_secret_owners

POOL = {"kind": "RewardPool", "uid": "pool", "controller": True}
SECRETS = [{"metadata": {"name": name, "uid": f"uid-{name}"}} for name in ("b", "a")]
MANIFEST = {"kind": "Service", "metadata": {"name": "rm-router", "ownerReferences": [POOL]}}


def test_the_pool_stays_the_only_controller() -> None:
    owners = with_secret_owners(MANIFEST, SECRETS)["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == ["pool", "uid-a", "uid-b"]
    assert [owner.get("controller") for owner in owners] == [True, None, None]
    assert not any("blockOwnerDeletion" in owner for owner in owners[1:])


def test_a_witness_that_names_all_tells_of_nothing() -> None:
    assert not shows_a_deletion(with_secret_owners(MANIFEST, SECRETS), SECRETS)


def test_a_witness_that_misses_one_or_is_gone_tells_of_a_loss() -> None:
    assert shows_a_deletion(with_secret_owners(MANIFEST, SECRETS[:1]), SECRETS)
    assert shows_a_deletion(None, SECRETS)

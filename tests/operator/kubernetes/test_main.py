"""How kopf is used: as a frame that writes nothing."""

from rewardpool_operator.main import watch_settings


def test_kopf_writes_nothing_of_its_own() -> None:
    settings = watch_settings()
    assert not settings.posting.enabled
    assert settings.peering.standalone

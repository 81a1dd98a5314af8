"""How kopf is used: as a frame that writes nothing."""

import pytest

from rewardpool_operator import main
from rewardpool_operator.kubernetes.cache.reflector import EtcdRestoredError
from rewardpool_operator.main import Settings, watch_settings


def test_kopf_writes_nothing_of_its_own() -> None:
    settings = watch_settings()
    assert not settings.posting.enabled
    assert settings.peering.standalone


def test_an_operator_whose_etcd_was_restored_ends_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(settings: Settings) -> None:
        raise ExceptionGroup("operator", [EtcdRestoredError("the version of pods went back from 9 to 5")])

    monkeypatch.setattr(main, "serve", serve)
    with pytest.raises(SystemExit, match=r"start the operator again \(the version of pods went back from 9 to 5"):
        main.run(Settings())


def test_a_defect_beside_a_restored_etcd_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(settings: Settings) -> None:
        raise ExceptionGroup("operator", [EtcdRestoredError("back"), ZeroDivisionError("a defect")])

    monkeypatch.setattr(main, "serve", serve)
    with pytest.raises(ExceptionGroup):
        main.run(Settings())

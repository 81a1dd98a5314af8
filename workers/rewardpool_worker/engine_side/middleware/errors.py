"""Errors that end a request without a score."""

from collections.abc import Sequence

from rewardpool_api.contract import ADAPTER_USER, CallerError


class InvalidRequestError(ValueError):
    """A request that says something else than the contract; the text says what."""


class OtherModelError(ValueError):
    """A request for another model than this worker's."""

    def __init__(self, model: str, served: str, adapters: Sequence[str] = ()) -> None:
        beside = f", with the adapters {', '.join(adapters)}" if adapters else ""
        adapter = model.removeprefix(ADAPTER_USER)
        missing = f"model {model!r}" if adapter == model else f"adapter {adapter!r}"
        super().__init__(f"there is no {missing} here: this worker serves {served!r}{beside}")
        self._served = served

    @property
    def refusal(self) -> CallerError:
        return CallerError(code="wrong_model", message=str(self), served=self._served)


class EngineFaultError(RuntimeError):
    """The engine answered what cannot be passed on as a score; the text says what."""


class NoAnswerError(EngineFaultError):
    """The engine ended a request without an answer, as it does when the caller disconnected."""

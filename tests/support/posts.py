"""A POST by the transport, for who would rather wait for its answer than be called."""

import asyncio

from rewardpool._client.connections.exchange import Exchange, HttpAnswer
from rewardpool._client.connections.http import HttpClient
from rewardpool._client.connections.target import RequestTarget


class AwaitedExchange(Exchange):
    """Its answer, or its error, is the future's."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        super().__init__()
        self.future: asyncio.Future[HttpAnswer] = asyncio.get_running_loop().create_future()

    def answered(self, answer: HttpAnswer) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def failed(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


async def post(client: HttpClient, to: RequestTarget, headers: bytes, body: bytes) -> HttpAnswer:
    """The answer to a request, which is given up when the caller is cancelled. Raises what the exchange fails with."""
    exchange = AwaitedExchange()
    client.send(exchange, to, headers, body)
    try:
        return await exchange.future
    finally:
        exchange.cancel()

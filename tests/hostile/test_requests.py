"""Whatever callers send to RewardPool's servers, with a key and without: no 5xx and no traceback is their doing."""

import asyncio
import functools
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from aiohttp import web
from hypothesis import strategies as st
from support.drawing import anything, draw_all, loose_texts, mostly, texts
from support.scripted_pools import ScriptedSource
from support.tried import EXAMPLES, TRIED

from rewardpool._gateway.server import GatewaySettings, gateway_app
from rewardpool._policy.text import PolicyText
from rewardpool._rewards import open_reward
from rewardpool_operator.front import health_app, metrics_app
from rewardpool_page.access import TokenFile
from rewardpool_page.server import page_app
from rewardpool_runtime import http_server
from rewardpool_runtime.functions.outcome import FunctionScore
from rewardpool_runtime.http_server import Runner
from rewardpool_worker.engine_side.middleware.routes import ENGINE_PATHS
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.middleware.settings import Settings
from rewardpool_worker.function_server import FunctionServer, options_of, parser

KEY: Final = "the-right-key"
AT_A_TIME: Final = 16
ANSWER_SECONDS: Final = 30.0
MOST_LEVELS: Final = 100
"""Of JSON, at which an engine fails."""
PATHS: Final = (
    *("/", "/health", "/healthz", "/metrics", "/rewardpool/ready", "/rewardpool/load", "/v1/models", "/v1/embeddings"),
    *(
        "/get_reward",
        "/slime",
        "/run_code",
        "/api/session",
        "/api/pools",
        "/api/logs?pool=a&name=b",
        "/api/manifest?pool=a",
        "/page.js",
    ),
    *(
        "/v1/chat/completions",
        "/update_weights_from_disk",
        "/%00",
        "/%ff%fe",
        "//health",
        "/../../etc/passwd",
        "*",
        "x",
    ),
)
odd_bytes: Final = st.one_of(
    st.binary(max_size=40).map(lambda some: re.sub(rb"[\r\n\x00]", b"?", some)),
    st.sampled_from([b"", b"[::1", b"a@b:c", b"\xff\xfe", b"text/html; charset=nonsense", b"%s%n", b"x" * 9000]),
)
HEADERS: Final[Mapping[bytes, st.SearchStrategy[bytes]]] = {
    b"Host": st.sampled_from([b"localhost", b"", b"[::1", b"a b", b"\xff", b"a:99999999"]),
    b"Content-Length": st.sampled_from([b"-1", b"0", b"99999999999999999999", b"+3", b"0x10", b"1e3"]),
    b"Transfer-Encoding": st.sampled_from([b"chunked", b"gzip, chunked", b"\xff", b"identity"]),
    b"Content-Encoding": st.sampled_from([b"gzip", b"deflate", b"br", b"zstd", b"nonsense"]),
    b"Content-Type": st.one_of(
        st.sampled_from([b"application/json", b"application/json; charset=nonsense"]), odd_bytes
    ),
    b"Authorization": st.one_of(
        st.sampled_from([b"Bearer \xff", b"Basic \xff", b"Basic AA", b"Basic =", b"Bearer"]), odd_bytes
    ),
    b"X-RewardPool-Session": st.one_of(st.just(b"made-up\xff"), odd_bytes),
    b"X-Correlation-Id": odd_bytes,
    b"X-Forwarded-Proto": odd_bytes,
    b"Sec-Fetch-Site": odd_bytes,
    b"Accept": st.one_of(st.sampled_from([b"application/openmetrics-text; version=nonsense; escaping=x"]), odd_bytes),
    b"Accept-Encoding": odd_bytes,
    b"Expect": st.one_of(st.sampled_from([b"100-continue", b"nonsense"]), odd_bytes),
    b"Range": odd_bytes,
    b"Upgrade": st.sampled_from([b"websocket", b"h2c"]),
}
sample: Final = st.fixed_dictionaries(
    {},
    optional={
        "data_source": mostly(texts),
        "solution_str": mostly(loose_texts),
        "ground_truth": anything,
        "extra_info": anything,
        "x": anything,
    },
)
bodies: Final = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"[" * 5000, b"[" * 900 + b"]" * 900, b'{"a":' * 3000, b"\xff\xfe[\x00", b"9" * 5000, b"NaN"]),
    st.fixed_dictionaries(
        {},
        optional={
            "model": mostly(st.just("m")),
            "input": st.one_of(sample.map(json.dumps), st.lists(sample.map(json.dumps), max_size=2), anything),
            "messages": anything,
            "user": anything,
            "prompt": mostly(loose_texts),
            "response": mostly(loose_texts),
            "label": anything,
            "query": mostly(st.lists(loose_texts, max_size=2)),
            "prompts": mostly(st.lists(loose_texts, max_size=2)),
            "labels": mostly(st.lists(anything, max_size=2)),
            "code": mostly(loose_texts),
            "language": mostly(st.just("python")),
            "run_timeout": anything,
            "files": anything,
            "token": mostly(loose_texts),
        },
    ).map(lambda value: json.dumps(value).encode()),
)


@st.composite
def requests(draw: Any) -> bytes:
    """A request as it travels, most of them HTTP."""
    if draw(st.integers(0, 19)) == 0:
        return bytes(draw(st.one_of(st.binary(max_size=99), st.just(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))))
    method = draw(st.sampled_from([b"GET", b"POST", b"POST", b"POST", b"DELETE", b"HEAD", b"OPTIONS", b"x", b"G\xffT"]))
    path = draw(st.sampled_from(PATHS)).encode()
    body = draw(bodies)
    chosen = draw(st.lists(st.sampled_from([*HEADERS]), max_size=3, unique=True))
    headers = {b"Host": b"localhost", b"Content-Length": str(len(body)).encode(), b"Content-Type": b"application/json"}
    if draw(st.booleans()):
        headers[b"Authorization"] = b"Bearer " + KEY.encode()
    headers |= {name: draw(HEADERS[name]) for name in chosen}
    head = b"".join(b"%b: %b\r\n" % each for each in headers.items())
    version = draw(st.sampled_from([b"HTTP/1.1"] * 8 + [b"HTTP/1.0", b"HTTP/9.9", b""]))
    return b"%b %b %b\r\n%bConnection: close\r\n\r\n%b" % (method, path, version, head, body)


@functools.cache
def drawn() -> list[bytes]:
    """The same ones for each server."""
    return draw_all(requests(), EXAMPLES)


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[int]:
    """The port of an application, served as RewardPool's servers are."""
    runner = Runner(app, head_seconds=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


class ObedientRunner:
    """Stands in for the processes of a function."""

    places = 4
    reached: Sequence[str] = ()

    async def start(self) -> None:
        pass

    async def run(self, *_: Any, **__: Any) -> FunctionScore:
        return FunctionScore(value=1.0, info={})


def function_server(folder: Any) -> web.Application:
    arguments = ["--function", "a:b", "--served-name", "m", "--key-file", str(folder / "key")]
    return FunctionServer(ObedientRunner(), options_of(parser().parse_args(arguments))).application()


def gateway(key: str | None) -> web.Application:
    return gateway_app(open_reward({"function": length}), GatewaySettings(text=PolicyText(), key=key))


def length(data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    return float(len(solution_str))


async def well(_: str) -> bytes:
    """Stands in for an operator."""
    return b'{"ok": true}'


SERVERS: Final[Mapping[str, Callable[[Any], web.Application]]] = {
    "a function server": function_server,
    "a gateway with a key": lambda _: gateway(KEY),
    "a gateway on loopback": lambda _: gateway(None),
    "the page": lambda folder: page_app(ScriptedSource(1_800_000_000.0), TokenFile(folder / "key")),
    "the operator's metrics": lambda _: metrics_app(well),
    "the operator's health": lambda _: health_app(well),
}


@pytest.mark.parametrize("name", SERVERS)
async def test_no_request_is_answered_5xx_or_leaves_a_traceback(
    name: str, tmp_path: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "BODY_SECONDS", 0.2)
    (tmp_path / "key").write_text(KEY)
    found: list[tuple[bytes, bytes]] = []
    async with served(SERVERS[name](tmp_path)) as port:
        turns = asyncio.Semaphore(AT_A_TIME)

        async def attack(request: bytes) -> None:
            async with turns:
                answer = await asked(port, request)
            if re.match(rb"HTTP/1\.[01] 5", answer):
                found.append((request, answer))

        attacks = drawn()
        TRIED[f"requests to {name}"] += len(attacks)
        async with asyncio.TaskGroup() as group:
            for request in attacks:
                group.create_task(attack(request))
    assert found == []
    assert [
        record.getMessage() for record in caplog.records if record.exc_info or record.levelno > logging.WARNING
    ] == []


@pytest.mark.parametrize("model_type", ["Discriminative", "Generative"])
async def test_no_request_makes_a_worker_of_an_engine_answer_5xx(model_type: str, tmp_path: Any) -> None:
    (tmp_path / "key").write_text(KEY)
    settings = Settings(key_file=tmp_path / "key", model_type=model_type, served_name="m")
    worker, found = ScoreMiddleware(brittle_engine, settings=settings), []
    attacks = [scope for request in drawn() if (scope := scope_of(request)) is not None]
    TRIED[f"requests to a {model_type} worker"] += len(attacks)
    for scope, body in attacks:
        status = await status_of(worker, scope, body)
        if status >= 500:
            found.append((scope, body))
    assert found == []


async def brittle_engine(scope: Any, receive: Any, send: Any) -> None:
    """An engine that fails at what engines fail at: paths of its own, depth, and what is JSON for Python alone."""
    body, path = (await receive()).get("body", b""), scope["path"]
    answer: dict[str, Any] = {"data": [{"id": "m"}]}
    if path in ("/classify", "/v1/chat/completions"):
        request = json.loads(body, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        samples = request.get("input", [])
        answer = {"data": [{"index": index, "probs": [0.5]} for index in range(len(samples))], "usage": {}}
        assert depth(request) < MOST_LEVELS
    else:
        assert path in ENGINE_PATHS
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def depth(value: Any) -> int:
    """Levels of lists and objects."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0)


def scope_of(request: bytes) -> tuple[dict[str, Any], bytes] | None:
    """What a server makes of a request; None of one that no server takes."""
    head, _, body = request.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3 or not parts[0].isalpha():
        return None
    path, _, query = parts[1].partition(b"?")
    headers = [(name.lower(), value) for name, _, value in (field.partition(b": ") for field in fields)]
    raw = {"raw_path": path, "query_string": query, "headers": headers}
    return {"type": "http", "method": parts[0].decode(), "path": path.decode(), **raw}, body


async def status_of(app: Any, scope: dict[str, Any], body: bytes) -> int:
    statuses: list[int] = []
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return given.pop() if given else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0]


async def asked(port: int, request: bytes) -> bytes:
    """The answer's beginning; empty where the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(ANSWER_SECONDS):
            return await reader.read(2000)
    except (ConnectionError, OSError):
        return b""
    finally:
        writer.close()

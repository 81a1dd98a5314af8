"""Log of the operator: a line per record, as text for people or as JSON for collectors.

All loggers share one handler, kopf's among them. What is done for one pool is logged with that pool as a field: `about`
names it once for everything that is called inside, so no message needs to.
"""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, Literal

from rewardpool_api.times import rfc3339

LogFormat = Literal["text", "json"]

# Characters. Container runtimes cut lines at 16 KiB, and half a JSON object cannot be read.
MAX_TEXT: Final = 6000

_pool: ContextVar[str | None] = ContextVar("pool", default=None)


@contextmanager
def about(pool: str) -> Iterator[None]:
    """Attribute everything logged inside, in tasks begun there too, to this pool (`namespace/name`)."""
    token = _pool.set(pool)
    try:
        yield
    finally:
        _pool.reset(token)


class TextFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER: [POOL: ]MESSAGE`, with the traceback in the lines below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(pool)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        pool = _pool.get()
        record.pool = f"{pool}: " if pool else ""
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, logger, message, and pool, fields and error where there are any.

    Fields are what a record was logged with as `extra={"fields": {name: value}}`: figures that collectors count by.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_TEXT],
        }
        if pool := _pool.get():
            line["pool"] = pool
        line |= getattr(record, "fields", {})
        if record.exc_info:
            # The end says what was raised.
            line["error"] = self.formatException(record.exc_info)[-MAX_TEXT:]
        return json.dumps(line, ensure_ascii=False)


def set_up(log_format: LogFormat, *, verbose: bool = False) -> None:
    """Send what all loggers say to standard error, in this format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    # kopf logs every event at INFO. What goes wrong in it is logged.
    logging.getLogger("kopf").setLevel(logging.WARNING)

"""Field types that several parts of the API have."""

from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from rewardpool_api.times import read_time

ShortText = Annotated[str, Field(min_length=1, max_length=253)]
"""A name, and nothing longer."""
ObjectName = Annotated[
    str, Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$")
]
"""What a Secret, ConfigMap or PersistentVolumeClaim may be called: a DNS subdomain, as Kubernetes has it."""
EntryName = Annotated[str, Field(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
"""What an entry of a Secret or ConfigMap may be called."""
Seconds = Annotated[int, Field(ge=0, le=86_400)]
"""A duration of at most a day."""
Count = Annotated[int, Field(ge=0, le=10**18)]
"""A number of things."""
Generation = Annotated[int, Field(ge=-1, le=2**53)]
"""Which version of a spec; -1 for none."""
MIN_RATE = 0.0001
MAX_RATE = 1e12
MeasuredRate = Annotated[float, Field(ge=MIN_RATE, le=MAX_RATE)]
"""Requests per second, of which there are some."""
MAX_DURATION = 1e12
Duration = Annotated[float, Field(ge=0, le=MAX_DURATION)]
"""Seconds that were measured."""
Time = Annotated[
    datetime,
    BeforeValidator(read_time),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""RFC 3339 time in a manifest or status; in memory a time in UTC, which pydantic writes as RFC 3339."""

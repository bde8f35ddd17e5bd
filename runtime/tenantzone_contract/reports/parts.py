"""The base class of all parts of a report, and the bounds of their values."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from tenantzone_contract.quantity import MAX_COUNT

MAX_BLOCKS: Final = 2**31 - 1
"""Maximum number of blocks of one engine."""

MAX_SECONDS: Final = 1e6
"""Maximum reported latency in seconds. Longer times, for example after a clock was set, are reported as this value."""

MAX_TIERS: Final = 8
"""Maximum number of tiers of one engine."""

Blocks = Annotated[int, Meta(ge=0, le=MAX_BLOCKS)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
ByteTotal = Annotated[int, Meta(ge=0)]
"""Total number of bytes since a zone was added. The total may exceed `MAX_COUNT` after weeks of transfers."""
Integral = Annotated[float, Meta(ge=0)]
Name = Annotated[str, Meta(max_length=253)]
"""A name, or a word of an enumeration. A newer engine may report words that this enumeration does not have."""
TierText = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")]
UnixTime = Annotated[float, Meta(ge=-1e12, le=1e12)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]


class Part(Struct, frozen=True, rename="camel", gc=False):
    """A part of the report. Unknown fields are ignored, so that an older operator can read a newer engine's report.

    The bounds are checked when a report is parsed, not when an engine makes it.
    """

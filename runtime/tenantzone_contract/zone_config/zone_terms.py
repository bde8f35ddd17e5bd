"""The settings of a TenantZone apart from its shares: lending, idleness, queue, requests, seats, retention, latency."""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from tenantzone_contract.zone_config.config_model import ConfigModel, Count, Seconds, exceeds, without_unset
from tenantzone_contract.zone_config.share import BlockShare, percentage
from tenantzone_contract.zone_config.user_header import READ_BY_OTHERS


def _not_none_at_all(share: int | str) -> int | str:
    if share in (0, "0%"):
        raise ValueError("expected at least 1, or at least 1%, because without seats no request could ever run")
    return share


AdapterName = Annotated[str, Field(min_length=1, max_length=253)]
"""Name of a LoRA adapter, as in the ``model`` field of requests."""

MAX_ADAPTERS: Final = 256
"""Maximum number of adapters of one zone, as in the CRD."""

Adapters = Annotated[tuple[AdapterName, ...], Field(max_length=MAX_ADAPTERS)]

Borrowers = Literal["SameOrHigherPriority", "AnyPriority"]
"""Zones that may borrow from a zone, by their priority relative to the lender's priority."""


class Lending(ConfigModel):
    """The terms on which other zones may borrow the unused part of a zone's reservation."""

    lendable: BlockShare = "100%"
    """Number of blocks that may be lent, or a percentage of the reservation."""
    borrowers: Borrowers = "SameOrHigherPriority"
    max_loan_seconds: Seconds | None = None
    """Seconds after which a loan is due. If None, a loan is due when the lender needs the blocks."""
    grace_seconds: Seconds = 30.0
    """Seconds for which a due loan may stay in use before the borrower's requests are preempted."""


class Release(ConfigModel):
    """The steps in which a quiet zone's cached blocks are freed."""

    share: Annotated[str, Field(pattern=r"^(100|[1-9][0-9]?)%$")]
    """Part freed per step, as a percentage of the blocks that the zone had cached when it became idle."""
    every_seconds: Annotated[float, Field(ge=1)]
    """Seconds between two steps, and between the time when the zone became idle and the first step."""


class Idle(ConfigModel):
    """Seconds without requests until a zone becomes idle, loses its cached blocks, and is forgotten. None for never."""

    after_seconds: Seconds = 60.0
    evict_after_seconds: Seconds | None = None
    forget_after_seconds: Seconds | None = None
    release: Release | None = None
    """Gradual release of cached blocks. If None, all blocks are freed at once, after ``evict_after_seconds``."""

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unset(self, dump(self), "release")

    @property
    def releases(self) -> Iterator[float]:
        """For each step of ``release``, the seconds without requests until the step. Empty if ``release`` is None."""
        if self.release is not None:
            for step in range(1, -(-100 // percentage(self.release.share)) + 1):
                yield self.after_seconds + step * self.release.every_seconds


class QueueBounds(ConfigModel):
    """Limits for a zone's requests that wait in one engine and were not scheduled yet. None for no limit."""

    requests: Count | None = None
    tokens: Count | None = None
    """Maximum number of prompt tokens of the waiting requests."""


class RequestLimits(ConfigModel):
    """Limits of one request of a zone; None for the engine's limit."""

    max_tokens: Count | None = None
    """Maximum number of tokens of an answer, which also applies to requests that set no length."""
    choices: Count | None = None
    """Maximum number of answers to one prompt."""
    logprobs: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Maximum number of alternatives to each token that are returned, the most likely first."""
    body_bytes: Count | None = None
    prompts: Count | None = None
    """Maximum number of prompts in one body, each of them a separate request for the engine."""
    structured_outputs: Literal["Any", "Schemas"] | None = None
    """Permitted kinds of structured output. `Schemas` excludes patterns and grammars. None means `Any`."""


class RequestPriority(ConfigModel):
    """The permitted range of ``priority`` in a zone's requests, always including the default 0. None for no bound."""

    min: Annotated[int, Field(ge=-(2**31), le=0)] | None = None
    max: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class SeatShare(ConfigModel):
    """A zone's seats (running requests) in one engine, as a number or as a percentage of the engine's seats."""

    reserved: BlockShare | None = None
    """Reserved seats, or None for a share in proportion to the zone's reserved blocks."""
    limit: Annotated[BlockShare, AfterValidator(_not_none_at_all)] | None = None
    """Maximum number of seats, or None for no limit."""

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        if self.reserved is not None and exceeds(self.reserved, self.limit):
            raise ValueError(f"reserved ({self.reserved}) must not exceed limit ({self.limit})")
        return self


class Retention(ConfigModel):
    """How long a zone's computed blocks are kept for later requests with the same prefix."""

    ttl_seconds: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which an unused cached block is evicted, or None to keep blocks while there is room."""
    no_store: bool = False
    """Whether the zone caches no blocks."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.no_store and self.ttl_seconds is not None:
            raise ValueError("ttl keeps blocks for a time, but noStore keeps no blocks; unset one of the two fields")
        return self


HeaderName = Annotated[
    str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", to_lower=True)
]
"""Name of an HTTP header, converted to lower case."""


class Fairness(ConfigModel):
    """Fairness among a zone's users, in addition to fairness among zones."""

    header: HeaderName | None = None
    """Request header that names the user, to give users equal service. If None, the first request is served first."""

    @model_validator(mode="after")
    def _is_its_own(self) -> Self:
        if self.header in READ_BY_OTHERS:
            raise ValueError(f"fairness.header ('{self.header}') must be a header of its own, which nothing else reads")
        return self


TargetSeconds = Annotated[float, Field(ge=0.001, le=600.0)]


class LatencyTargets(ConfigModel):
    """Targets for the time that a zone's requests take, at the 99th percentile; None for no target."""

    token_time_seconds: TargetSeconds | None = None
    """Target for the seconds between two tokens of a request."""
    first_token_seconds: TargetSeconds | None = None
    """Target for the seconds from a request's arrival to its first token."""

    def __bool__(self) -> bool:
        return self.token_time_seconds is not None or self.first_token_seconds is not None

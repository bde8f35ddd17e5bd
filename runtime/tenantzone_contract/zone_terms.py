"""The terms of a TenantZone apart from its shares: lending, idleness, queue, requests, seats, time."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from tenantzone_contract.config_model import ConfigModel, Count, Seconds, exceeds, without_unset
from tenantzone_contract.share import BlockShare
from tenantzone_contract.user_header import READ_BY_OTHERS


def _not_none_at_all(share: int | str) -> int | str:
    if share in (0, "0%"):
        raise ValueError("expected at least 1, or at least 1%: with none no request could ever run")
    return share


AdapterName = Annotated[str, Field(min_length=1, max_length=253)]
"""The name of a LoRA adapter, as requests name it in ``model``."""

MAX_ADAPTERS: Final = 256
"""The most adapters of one zone, as in the CRD."""

Adapters = Annotated[tuple[AdapterName, ...], Field(max_length=MAX_ADAPTERS)]

Borrowers = Literal["SameOrHigherPriority", "AnyPriority"]
"""Which zones may borrow from a zone, by their priority against the lender's."""


class Lending(ConfigModel):
    """What other zones may borrow of a reservation that its owner does not use."""

    lendable: BlockShare = "100%"
    """The blocks that may be lent, or a percentage of the reservation."""
    borrowers: Borrowers = "SameOrHigherPriority"
    max_loan_seconds: Seconds | None = None
    """The time after which a loan is due; None if it is due when the lender asks for it."""
    grace_seconds: Seconds = 30.0
    """How long a loan that is due may stay in use before the borrower's requests are preempted for it."""


class Release(ConfigModel):
    """The steps in which a quiet zone's cached blocks are freed."""

    share: Annotated[str, Field(pattern=r"^(100|[1-9][0-9]?)%$")]
    """The part freed per step, of what the zone had cached when it became quiet."""
    every_seconds: Annotated[float, Field(ge=1)]
    """The seconds between two steps, and from the moment when the zone became quiet to the first one."""


class Idle(ConfigModel):
    """What happens to a zone without requests, and after how many seconds; None for never."""

    after_seconds: Seconds = 60.0
    evict_after_seconds: Seconds | None = None
    forget_after_seconds: Seconds | None = None
    release: Release | None = None
    """The steps; None to free all blocks at once, after ``evict_after_seconds``."""

    @model_serializer(mode="wrap")
    def _for_older_engines(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unset(self, dump(self), "release")


class Queue(ConfigModel):
    """What of a zone may wait in one engine to be scheduled for the first time; None for no bound."""

    requests: Count | None = None
    tokens: Count | None = None
    """The prompt tokens of the waiting requests."""


class RequestLimits(ConfigModel):
    """What one request of a zone may ask for; None for whatever the engine can do."""

    max_tokens: Count | None = None
    """The most tokens of an answer; also bounds a request that names no length."""
    choices: Count | None = None
    """The most answers to one prompt."""
    logprobs: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """The most alternatives that are returned for each token, by likelihood."""
    body_bytes: Count | None = None
    prompts: Count | None = None
    """The most prompts in one body; each is a request of its own for the engine."""
    structured_outputs: Literal["Any", "Schemas"] | None = None
    """How an answer's structure may be specified; `Schemas`: without patterns and grammars. None for `Any`."""


class RequestPriority(ConfigModel):
    """The range of ``priority`` in requests of a zone; None: unbounded on that side. It includes 0, the default."""

    min: Annotated[int, Field(ge=-(2**31), le=0)] | None = None
    max: Annotated[int, Field(ge=0, lt=2**31)] | None = None


class SeatShare(ConfigModel):
    """Requests of a zone that run at once in one engine; each a number, or a percentage of what the engine can run."""

    reserved: BlockShare | None = None
    """The reserved seats; None for the share that comes with the blocks that the zone reserves."""
    limit: Annotated[BlockShare, AfterValidator(_not_none_at_all)] | None = None
    """The most seats; None for as many as are free."""

    @model_validator(mode="after")
    def _amounts_agree(self) -> Self:
        if self.reserved is not None and exceeds(self.reserved, self.limit):
            raise ValueError(f"reserved ({self.reserved}) must not exceed limit ({self.limit})")
        return self


class Retention(ConfigModel):
    """How long a zone's computed blocks are kept for other requests with the same beginning."""

    ttl_seconds: Annotated[float, Field(gt=0)] | None = None
    """A cached block unused for this long is evicted; None to keep it as long as there is room."""
    no_store: bool = False
    """Whether nothing is kept at all."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.no_store and self.ttl_seconds is not None:
            raise ValueError("ttl says how long blocks are kept, and noStore that none is; unset one of them")
        return self


HeaderName = Annotated[
    str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", to_lower=True)
]
"""The name of an HTTP header, converted to lower case."""


class Fairness(ConfigModel):
    """How a zone's service is shared among its users, in addition to the sharing among zones."""

    header: HeaderName | None = None
    """The request header that names the user; users are served alike. None for first come, first served."""

    @model_validator(mode="after")
    def _is_its_own(self) -> Self:
        if self.header in READ_BY_OTHERS:
            raise ValueError(f"fairness.header ('{self.header}') must be a header of its own, which nothing else reads")
        return self


TargetSeconds = Annotated[float, Field(ge=0.001, le=600.0)]


class Latency(ConfigModel):
    """Targets for the time that a zone's requests take, at the 99th percentile; None for no target."""

    token_time_seconds: TargetSeconds | None = None
    """The seconds between two tokens of a request."""
    first_token_seconds: TargetSeconds | None = None
    """The seconds from a request's arrival to its first token."""

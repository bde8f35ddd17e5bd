"""Migration: the orders for a zone's cache at an engine's admin port, and the reports on them.

Blocks move in chunks, as in tiers. A prompt is named by the hashes of its blocks; nothing can be read with hashes
alone.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError
from pydantic.alias_generators import to_camel

from tenantzone_contract.config_text import explain

MIGRATION_PATH: Final = "/migration"
TENANT_PARAMETER: Final = "tenant"
"""The query's parameter for the tenant of the zone."""
PROMPTS_PARAMETER: Final = "prompts"
"""The query's parameter that asks for the prompts that the zone used last, if ``true``."""

LONGEST_ORDER: Final = 8 * 2**20
"""The most bytes of an order."""
MAX_BLOCKS: Final = 65_536
"""The most blocks that one order or report names."""

PATIENCE_SECONDS: Final = 30.0
"""An order ends if no request for its report comes for this long, because its client is gone."""

Work = Literal["look", "hand-down", "warm-up"]
"""look: check what shared storages have of the engine's cache.

hand-down: write the rest to them. warm-up: load prompts from them into CPU memory.
"""
Order = Literal[Work, "stop"]
State = Literal["None", "Running", "Done", "Stopped", "Failed"]

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Hash = Annotated[bytes, Field(min_length=1, max_length=64)]
# Fail fast: reporting the errors of a million hashes would take an engine seconds.
Prompt = Annotated[tuple[Hash, ...], Field(min_length=1, max_length=MAX_BLOCKS), FailFast()]
"""The hashes of a prompt's blocks, from its beginning."""
Prompts = Annotated[tuple[Prompt, ...], Field(max_length=MAX_BLOCKS), FailFast()]


class MigrationError(Exception):
    """A zone's cache can't be moved now; the message says why, and what to do."""


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )


class MigrationOrder(_Model):
    """An order to an engine for the cache of one zone. The engine does one thing at a time; ``stop`` ends it."""

    order: Order
    tenant: Annotated[str, Field(min_length=1, max_length=4096)]
    bytes_per_second: Annotated[float, Field(gt=0.0, le=1e15, allow_inf_nan=False)] = 1e15
    """The most bytes per second that the engine may move."""
    prompts: Prompts = ()
    """The prompts that a warm-up loads, the most recently used first."""


class MigrationReport(_Model):
    """The progress of an order at one moment; amounts are chunks unless the name says otherwise."""

    pod: str = ""
    tenant: str
    work: Work | None = None
    """The current or last work; None if nothing was ordered since the engine's start."""
    state: State = "None"
    problem: str = ""
    """Why the work failed, or was stopped."""
    chunk_bytes: Count
    chunk_tokens: Count
    prompts_total: Count = 0
    prompts_done: Count = 0
    moved: Count = 0
    moved_bytes: Count = 0
    found: Count = 0
    """At the end: the chunks that are where they should be, whether moved or there before."""
    left: Count = 0
    """At the end: the chunks that are not where they should be."""
    seconds: Seconds = 0.0
    """The time since the work began, or that it took."""
    prompt_tokens_per_second: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    """The engine's recent prompt speed in its largest steps; None if it has computed none."""
    prompts: Prompts = ()
    """The zone's cached prompts if they were asked for, the most recently used first."""

    @property
    def is_running(self) -> bool:
        """Whether the work is still running."""
        return self.state == "Running"


def parse_order(text: bytes) -> MigrationOrder:
    """Read an order from its JSON.

    Raises:
        ValueError: it is not an order, or it names too many blocks.
    """
    try:
        order = MigrationOrder.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(explain(error)) from None
    if sum(map(len, order.prompts)) > MAX_BLOCKS:
        raise ValueError(f"an order names at most {MAX_BLOCKS:,} blocks")
    return order


def parse_migration(text: bytes) -> MigrationReport:
    """Read a report from its JSON.

    Raises:
        ValueError: it is not a report.
    """
    return MigrationReport.model_validate_json(text)

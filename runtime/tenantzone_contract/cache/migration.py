"""Migration: orders at an engine's admin port to move a zone's cache, and reports on the progress of an order.

Blocks are moved in chunks, as in tiers. A prompt is identified by the hashes of its blocks, but these hashes do not
suffice to read the blocks.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError
from pydantic.alias_generators import to_camel

from tenantzone_contract.quantity import MAX_COUNT
from tenantzone_contract.zone_config.config_text import explain

MIGRATION_PATH: Final = "/migration"
TENANT_PARAMETER: Final = "tenant"
"""Query parameter for the tenant of the zone."""
PROMPTS_PARAMETER: Final = "prompts"
"""Query parameter. If set to ``true``, the report also has the zone's most recently used prompts."""

LONGEST_ORDER: Final = 8 * 2**20
"""Maximum size of an order in bytes."""
MAX_BLOCKS: Final = 65_536
"""Maximum number of blocks in an order or report."""

PATIENCE_SECONDS: Final = 30.0
"""An order stops after this number of seconds without a request for its report: its client is presumed gone."""

Work = Literal["look", "hand-down", "warm-up"]
"""Kind of work of an order.

look: check which of the engine's cached chunks exist in shared storages. hand-down: write the missing chunks to the
storages. warm-up: load prompts from the storages into CPU memory.
"""
Order = Literal[Work, "stop"]
State = Literal["None", "Running", "Done", "Stopped", "Failed"]

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Hash = Annotated[bytes, Field(min_length=1, max_length=64)]
# Fail fast, because reporting the errors of a million hashes would take an engine seconds.
Prompt = Annotated[tuple[Hash, ...], Field(min_length=1, max_length=MAX_BLOCKS), FailFast()]
"""Hashes of a prompt's blocks, from its beginning."""
Prompts = Annotated[tuple[Prompt, ...], Field(max_length=MAX_BLOCKS), FailFast()]


class MigrationError(Exception):
    """A zone's cache can't be moved now. The message states the reason and the remedy."""


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
    """An order to an engine for the cache of one zone. An engine runs one order at a time; ``stop`` ends this order."""

    order: Order
    tenant: Annotated[str, Field(min_length=1, max_length=4096)]
    bytes_per_second: Annotated[float, Field(gt=0.0, le=1e15, allow_inf_nan=False)] = 1e15
    """Maximum number of bytes per second that the engine moves."""
    prompts: Prompts = ()
    """Prompts that a warm-up loads, most recently used first."""


class MigrationReport(_Model):
    """The progress of an order at one moment. Amounts are in chunks unless the name has another unit."""

    pod: str = ""
    tenant: str
    work: Work | None = None
    """Current or last work, or None if there was no order since the engine's start."""
    state: State = "None"
    problem: str = ""
    """Reason why the work failed or was stopped."""
    chunk_bytes: Count
    chunk_tokens: Count
    prompts_total: Count = 0
    prompts_done: Count = 0
    moved: Count = 0
    moved_bytes: Count = 0
    found: Count = 0
    """Number of chunks in the target tier at the end, including chunks that were there before."""
    left: Count = 0
    """Number of chunks missing in the target tier at the end."""
    seconds: Seconds = 0.0
    """Seconds since the work began, or the duration of the work if it has ended."""
    prompt_tokens_per_second: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    """Recent rate of computed prompt tokens in the engine's largest steps. None if no prompts were computed."""
    prompts: Prompts = ()
    """The zone's cached prompts, most recently used first. Empty unless the query requested prompts."""

    @property
    def is_running(self) -> bool:
        """Whether the work is still running."""
        return self.state == "Running"


def parse_order(text: bytes) -> MigrationOrder:
    """Read an order from its JSON.

    Raises:
        ValueError: the text is not an order, or the order has too many blocks.
    """
    try:
        order = MigrationOrder.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(explain(error)) from None
    if sum(map(len, order.prompts)) > MAX_BLOCKS:
        raise ValueError(f"a migration order may name at most {MAX_BLOCKS:,} blocks; send fewer prompts")
    return order


def parse_migration(text: bytes) -> MigrationReport:
    """Read a report from its JSON.

    Raises:
        ValueError: the text is not a report.
    """
    return MigrationReport.model_validate_json(text)

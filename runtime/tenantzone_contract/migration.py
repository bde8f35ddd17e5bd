"""Migration: what an engine's admin port is asked to do with a zone's cache, and what it says of that.

Blocks go in chunks, as tiers move them. A prompt is named by the hashes of its blocks, which find nothing by
themselves.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError
from pydantic.alias_generators import to_camel

from tenantzone_contract.config_text import explain

MIGRATION_PATH: Final = "/migration"
TENANT_PARAMETER: Final = "tenant"
"""Of the query: whose zone."""
PROMPTS_PARAMETER: Final = "prompts"
"""Of the query: ``true``, if the prompts that the zone used last are to be named, too."""

LONGEST_ORDER: Final = 8 * 2**20
"""Bytes."""
MAX_BLOCKS: Final = 65_536
"""That one order names, and one report."""

PATIENCE_SECONDS: Final = 30.0
"""An order ends when nobody has asked for so long how far it has come: whoever gave it is gone."""

Work = Literal["look", "hand-down", "warm-up"]
"""look: see what shared storages have of what the engine has cached. hand-down: have them get the rest. warm-up: bring
prompts from them into CPU memory."""
Order = Literal[Work, "stop"]
State = Literal["None", "Running", "Done", "Stopped", "Failed"]

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Hash = Annotated[bytes, Field(min_length=1, max_length=64)]
# What is wrong with each of a million hashes would take an engine seconds to say.
Prompt = Annotated[tuple[Hash, ...], Field(min_length=1, max_length=MAX_BLOCKS), FailFast()]
"""The hashes of its blocks from its beginning."""
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
    """What an engine is to do with the cache of one zone. It does one thing at a time; ``stop`` ends it."""

    order: Order
    tenant: Annotated[str, Field(min_length=1, max_length=4096)]
    bytes_per_second: Annotated[float, Field(gt=0.0, le=1e15, allow_inf_nan=False)] = 1e15
    """That it may move at most."""
    prompts: Prompts = ()
    """Of a warm-up: those to bring up, the one first that was used last."""


class MigrationReport(_Model):
    """What an engine has done of an order, of one moment; amounts are chunks unless they say otherwise."""

    pod: str = ""
    tenant: str
    work: Work | None = None
    """None: nothing was asked for since the engine has started."""
    state: State = "None"
    problem: str = ""
    """Why it failed, or was stopped."""
    chunk_bytes: Count
    chunk_tokens: Count
    prompts_total: Count = 0
    prompts_done: Count = 0
    moved: Count = 0
    moved_bytes: Count = 0
    found: Count = 0
    """At the end: that are where they should be, however they came there."""
    left: Count = 0
    """At the end: that are not."""
    seconds: Seconds = 0.0
    """Since it began, or that it took."""
    prompt_tokens_per_second: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    """That the engine computes in its largest steps of late; None: it has computed none."""
    prompts: Prompts = ()
    """If they were asked for: those of the zone that are cached, the one first that was used last."""

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.state == "Running"


def parse_order(text: bytes) -> MigrationOrder:
    """Read an order from its JSON.

    Raises:
        ValueError: it is none, or it names too much.
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
        ValueError: it is none.
    """
    return MigrationReport.model_validate_json(text)

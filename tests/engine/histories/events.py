"""The parts of a life: the engine's flags, and the events that happen to the engine, in order."""

from dataclasses import dataclass
from typing import Any, Literal

from vllm.v1.core.sched.interface import PauseState

from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig

TENANTS = ("acme", "burst", "calm", "dusk")
STRANGER = "stranger"
"""A tenant that no config names."""


@dataclass(frozen=True)
class TierFlags:
    """The tiers of an engine, and how fast they are."""

    chunks: int
    """Chunks of CPU memory, of one block each."""
    slowest: int
    """The most steps that a copy takes."""
    files: int | None
    """Chunks of a disk below it; None: no disk."""
    failing: bool
    """Whether the disk fails now and then."""


@dataclass(frozen=True)
class Flags:
    """How the engine is started."""

    capacity: int
    """Blocks of the pool."""
    seats: int
    """``--max-num-seqs``."""
    batched_tokens: int
    """``--max-num-batched-tokens``; at least the number of seats, and a whole prompt's where prompts are not cut."""
    chunked: bool
    """``--enable-chunked-prefill``."""
    long_prefill: int
    """``--long-prefill-token-threshold``; 0: none."""
    watermark: float
    whole_prompts: bool
    """``--scheduler-reserve-full-isl``."""
    window: int | None
    """Tokens that attention looks back, in one group's layers or where ``kinds`` say so; None: all."""
    kinds: tuple[str, ...]
    """Kinds of the model's layers, with a group of KV caches for each; empty: one group."""
    policy: Literal["fcfs", "priority"]
    prefix_caching: bool
    steps_in_flight: int
    """1: each step ends before the next is scheduled. More than 2: one more than a pipeline has stages."""
    step_seconds: float
    """Seconds that each step takes."""
    token_seconds: float
    """Further seconds for each token that a step computes."""
    drafting: tuple[str, int] | None
    """``--speculative-config``: a method, and the number of tokens drafted at a time; None: no drafts."""
    encoder: tuple[int, int] | None
    """Embeddings of images that a step may make, and that stay cached; None: the model takes no images."""
    whole_images: bool
    """``--disable-chunked-mm-input``: no step computes a part of an image."""
    adapters: int | None
    """``--max-loras``; None: the model takes no adapters."""
    steps_in_pauses: bool
    """Whether configs and time change one zone after another, with a step in between."""
    tiers: TierFlags | None
    """``--kv-transfer-config``; None: no tiers."""


IMAGES = {"cat": 16, "dog": 40, "owl": 64}
"""Images that tenants show repeatedly, by name, with the number of embeddings: one token for each."""


@dataclass(frozen=True)
class Image:
    """An image in a prompt."""

    like: str
    """One of `IMAGES`."""
    is_new: bool
    """Whether it is a new image of the same size."""
    gap: int
    """Tokens before it: from the prompt's beginning, or from the previous image."""


@dataclass(frozen=True)
class Declare:
    """A config arrives; it may not fit the engine."""

    zones: tuple[ZoneConfig, ...]
    pool: PoolConfig

    def __repr__(self) -> str:
        """Only the values that are not defaults."""
        zones = ", ".join(
            str(zone.model_dump(exclude_defaults=True, exclude={"name", "generation"})) for zone in self.zones
        )
        return f"Declare([{zones}], {self.pool.model_dump(exclude_defaults=True, exclude={'namespace', 'name'})})"


@dataclass(frozen=True)
class Send:
    """Identical requests arrive."""

    tenant: str | None
    """The tenant; None: the request bypasses the frontend."""
    blocks: int
    """Full blocks of the prompt."""
    extra: int
    """Further tokens of the prompt."""
    max_tokens: int
    prefix: int | None
    """Prompts with the same number begin alike; None: like no other."""
    count: int
    priority: int
    prompt_logprobs: bool
    """Whether prompt logprobs are requested: such a request reads no prefix from the cache."""
    user: str
    """The tenant's user; empty: not reported."""
    images: tuple[Image, ...]
    """The images of the prompt, as far as they fit."""
    grammar: int | None
    """Turns of the engine until the grammar is compiled, negative if it then fails; None: free text."""
    adapter: int | None
    """The number of a LoRA adapter; None: the base model."""


@dataclass(frozen=True)
class Turns:
    """The engine makes some turns."""

    count: int


@dataclass(frozen=True)
class Wait:
    """Time passes in which the engine does nothing."""

    seconds: float


@dataclass(frozen=True)
class Abort:
    """Clients go away: of the unfinished requests, every ``every``-th from ``first`` on."""

    first: int
    every: int


@dataclass(frozen=True)
class Pause:
    """The engine is paused, or resumed with UNPAUSED."""

    state: PauseState


@dataclass(frozen=True)
class ResetCache:
    """All prefixes are forgotten; refused while requests use blocks, unless these are sent back first."""

    with_running: bool


@dataclass(frozen=True)
class Forget:
    """Everything cached in blocks and in CPU memory goes, as if others had evicted it; a disk keeps it."""


Event = Declare | Send | Turns | Wait | Abort | Pause | ResetCache | Forget


@dataclass(frozen=True)
class Life:
    """Flags, and a list of events."""

    flags: Flags
    events: tuple[Event, ...]

    def __repr__(self) -> str:
        """One event per line, so that a shrunk life is readable."""
        return f"Life({self.flags},\n    " + ",\n    ".join(map(repr, self.events)) + ")"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis' printed form."""
        printer.text(repr(self))

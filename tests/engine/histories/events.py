"""What a life consists of: the engine's flags, and what happens to the engine, in order."""

from dataclasses import dataclass
from typing import Any, Literal

from vllm.v1.core.sched.interface import PauseState

from tenantzone_contract.config import PoolConfig, ZoneConfig

TENANTS = ("acme", "burst", "calm", "dusk")
STRANGER = "stranger"
"""A tenant that no config names."""


@dataclass(frozen=True)
class TierFlags:
    """The tiers of an engine, and how fast they are."""

    chunks: int
    """Of CPU memory, each of one block."""
    slowest: int
    """Steps that a copy takes at most."""
    files: int | None
    """Chunks of a disk below it; None: there is none."""
    failing: bool
    """Whether the disk fails now and then."""


@dataclass(frozen=True)
class Flags:
    """How the engine is started."""

    capacity: int
    """Blocks."""
    seats: int
    """``--max-num-seqs``."""
    batched_tokens: int
    """``--max-num-batched-tokens``; no fewer than seats, and a whole prompt's where these are not cut."""
    chunked: bool
    """``--enable-chunked-prefill``."""
    long_prefill: int
    """``--long-prefill-token-threshold``; 0: none."""
    watermark: float
    whole_prompts: bool
    """``--scheduler-reserve-full-isl``."""
    window: int | None
    """Tokens that attention looks back, of one group's layers or where ``kinds`` say so; None: all."""
    kinds: tuple[str, ...]
    """Of the model's layers, a group of KV caches for each; none: one group."""
    policy: Literal["fcfs", "priority"]
    prefix_caching: bool
    steps_in_flight: int
    """1: each step ends before the next one is scheduled. More than 2: one more than a pipeline has stages."""
    step_seconds: float
    """That each step takes, ..."""
    token_seconds: float
    """... and more for each token that it computes."""
    drafting: tuple[str, int] | None
    """``--speculative-config``: a method, and how many tokens are drafted at a time; None: none are."""
    encoder: tuple[int, int] | None
    """Embeddings of images that a step may make, and that stay cached; None: the model takes no images."""
    whole_images: bool
    """``--disable-chunked-mm-input``: no step computes a part of an image."""
    adapters: int | None
    """``--max-loras``; None: the model takes none."""
    steps_in_pauses: bool
    """Whether configs and time change one zone after the other, with a step in between."""
    tiers: TierFlags | None
    """``--kv-transfer-config``; None: there are none."""


IMAGES = {"cat": 16, "dog": 40, "owl": 64}
"""Images that tenants show again and again, by name, and the embeddings of each: a token for each of them."""


@dataclass(frozen=True)
class Image:
    """An image in a prompt."""

    like: str
    """One of `IMAGES`."""
    is_new: bool
    """Whether it is as large as that, and like no other."""
    gap: int
    """Tokens before it: from the prompt's beginning, or from the image before it."""


@dataclass(frozen=True)
class Declare:
    """A config arrives. It may be one that does not fit the engine."""

    zones: tuple[ZoneConfig, ...]
    pool: PoolConfig

    def __repr__(self) -> str:
        """Only what is not a default."""
        zones = ", ".join(
            str(zone.model_dump(exclude_defaults=True, exclude={"name", "generation"})) for zone in self.zones
        )
        return f"Declare([{zones}], {self.pool.model_dump(exclude_defaults=True, exclude={'namespace', 'name'})})"


@dataclass(frozen=True)
class Send:
    """Requests arrive, all alike."""

    tenant: str | None
    """None: past the frontend."""
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
    """Such a request reads no prefix from the cache."""
    user: str
    """Of the tenant; empty: that is not told."""
    images: tuple[Image, ...]
    """Those that the prompt has room for are in it."""
    grammar: int | None
    """Turns of the engine until the grammar is compiled, negative if it fails then; None: the answer is free text."""
    adapter: int | None
    """Number of a LoRA adapter; None: the model itself is asked."""


@dataclass(frozen=True)
class Turns:
    """The engine goes on."""

    count: int


@dataclass(frozen=True)
class Wait:
    """Time passes in which the engine does nothing."""

    seconds: float


@dataclass(frozen=True)
class Abort:
    """Clients go away: of the requests that have not ended, every ``every``-th from ``first`` on."""

    first: int
    every: int


@dataclass(frozen=True)
class Pause:
    """The engine is paused, or resumed with UNPAUSED."""

    state: PauseState


@dataclass(frozen=True)
class ResetCache:
    """All prefixes are forgotten; refused while requests use blocks, unless those are sent back first."""

    with_running: bool


@dataclass(frozen=True)
class Forget:
    """All that is cached in blocks and in CPU memory goes, as if others had driven it out; a disk keeps it."""


Event = Declare | Send | Turns | Wait | Abort | Pause | ResetCache | Forget


@dataclass(frozen=True)
class Life:
    """Flags, and what happens."""

    flags: Flags
    events: tuple[Event, ...]

    def __repr__(self) -> str:
        """One event a line, so that a shrunk life can be read."""
        return f"Life({self.flags},\n    " + ",\n    ".join(map(repr, self.events)) + ")"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What Hypothesis prints."""
        printer.text(repr(self))

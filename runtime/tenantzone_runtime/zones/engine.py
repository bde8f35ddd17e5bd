"""The arbiter's view of an engine: its running requests, and the first waiting requests of each zone.

vLLM's adapter, the simulator and the randomized tests implement this interface. None of them decides which zone gets
blocks, seats or tokens.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tenantzone_runtime.zones.blocks.eviction import Evictions
from tenantzone_runtime.zones.model.zone import Zone


class Work(Protocol):
    """A request, waiting or running."""

    zone: Zone
    """The zone of the request. Each request has a zone."""
    peak: int
    """Number of blocks that the request uses when it is longest. It is within the zone's limit at the request's
    arrival. If the limit is lowered later, the request may still finish."""


W = TypeVar("W", bound=Work)


@dataclass(frozen=True, slots=True)
class Encoding:
    """The room in an engine's encoder that the encoding of an image, sound or video takes, in embeddings."""

    cache: int
    """Number of embeddings that stay in the encoder cache until their tokens are computed."""
    compute: int
    """Number of embeddings to compute in a step; 0 if the encoding is cached already."""


class Engine(Protocol[W]):
    """The state of an engine between two steps, or within a step."""

    @property
    def running(self) -> Sequence[W]:
        """The running requests, in the engine's order."""

    def by_seniority(self) -> Sequence[W]:
        """Returns the running requests, most senior first. Of a zone's requests, the last one is preempted first."""

    @property
    def free_blocks(self) -> int:
        """Number of blocks that no zone holds."""

    @property
    def headroom(self) -> int:
        """Number of blocks that must stay free or cached after an admission, while other requests run."""

    @property
    def is_open(self) -> bool:
        """Whether the engine admits waiting requests. While it is paused, it does not, but running requests finish."""

    @property
    def goes_on(self) -> bool:
        """Whether the engine computes running requests. A pause may stop that, too."""

    @property
    def seats(self) -> int:
        """Number of requests that can run at once."""

    @property
    def free_seats(self) -> int:
        """Number of requests that can run in addition to the running ones; 0 while the engine is not open."""

    @property
    def loading(self) -> Collection[W]:
        """Requests that have a seat and blocks, but can't be preempted until their data is loaded from a tier."""

    @property
    def landing(self) -> Collection[W]:
        """The loading requests, except those whose data is loaded but that lack room to run."""

    @property
    def adapter_slots(self) -> int:
        """Number of LoRA adapters whose requests can run at once; 0 if the engine uses no adapters."""

    def adapter(self, work: W) -> int | None:
        """Returns the number of the LoRA adapter that a request needs; None if it needs none."""

    @property
    def media_zones(self) -> Collection[Zone]:
        """The zones of all requests with images, sounds or videos, waiting or running."""

    @property
    def encoder_room(self) -> Encoding:
        """The free room: how many more embeddings the encoder cache can hold, and how many a step may compute."""

    def next_encoding(self, work: W) -> Encoding | None:
        """Returns the room for the encoding that a request needs to begin or to continue in this step.

        Returns None if the request needs no encoding, if another request of its zone uses the same encoding already, or
        if the encoding could never fit into the encoder.
        """

    def encodings_in_use(self) -> Iterable[tuple[int, Set[W]]]:
        """Returns the encodings in use, each as the number of its embeddings and the requests that use it."""

    def can_encode(self, work: W) -> bool:
        """Whether the encoder has room for a waiting request's first encoding, beyond what is kept for other zones."""

    @property
    def coming(self) -> Mapping[Zone, int]:
        """Number of released blocks, by zone, that become free or cached only when the steps in flight have ended."""

    @property
    def waiting(self) -> Sized:
        """The waiting requests that, as far as the engine knows, need only blocks and seats to be admitted."""

    def needs(self) -> Iterable[tuple[W, int]]:
        """Returns the running requests that need blocks in the coming step, each with the number of blocks.

        The requests are in the engine's order. The numbers may be approximate, so that they are cheap to compute.
        """

    def is_running(self, work: W) -> bool:
        """Whether a request is still running, and has not ended meanwhile."""

    def front(self, zone: Zone) -> W:
        """Returns the next waiting request of a zone, which must have one."""

    def fronts(self, zone: Zone, count: int) -> Sequence[W]:
        """Returns at most ``count`` next waiting requests of a zone, in order. The zone must have at least one."""

    def blocks_at_most(self, work: W) -> int:
        """Returns an upper bound of ``blocks_to_admit``: the blocks to admit a waiting request without prefix hits.

        It is cheap to compute. It is 0 for a request that can't be admitted yet for a reason other than blocks, seats
        or adapter slots.
        """

    def blocks_to_admit(self, work: W) -> int:
        """Returns the blocks that a waiting request uses when it is admitted: new blocks, and cached ones it hits."""

    def can_begin(self, work: W) -> bool:
        """Whether a waiting request could begin in this step, given enough blocks and tokens.

        It can't if its next image or sound has no room in the encoder, or if its prefix is still being computed.
        """

    def can_go_on(self, work: W) -> bool:
        """Whether the prompt of a running request could continue in this step, given enough blocks and tokens.

        It can't if its next image or sound has no room in the encoder.
        """

    def blocks_to_continue(self, work: W) -> int:
        """Returns the most blocks that a running request needs in its next step."""

    @property
    def step_tokens(self) -> int | None:
        """Maximum number of tokens in a step; None if prompts are computed whole, so that tokens can't be divided."""

    def chunk_tokens(self, work: W) -> int:
        """Returns the unit, in tokens, in which steps compute a request's prompt except for its end; usually 1."""

    @property
    def tokens_each(self) -> int:
        """Number of tokens that a step computes for a generating request; more than 1 with speculative decoding."""

    @property
    def depth(self) -> int:
        """Maximum number of steps in flight at once."""

    def in_prompts(self) -> Sequence[W]:
        """The running requests whose prompts are not computed completely, in the engine's order."""

    def is_in_prompt(self, work: W) -> bool:
        """Whether a running request's prompt is not computed completely."""

    def tokens_left(self, work: W) -> int:
        """Returns how many prompt tokens of a request a step could compute. Ignores a waiting request's prefix hits."""

    def tokens_within(self, work: W, blocks: int) -> int:
        """Returns how many prompt tokens of a running request a step could compute with ``blocks`` more blocks."""

    def tokens_computed(self, work: W) -> int:
        """Returns the number of a request's computed tokens."""

    def preempt(self, work: W) -> None:
        """Preempt a running request. It then waits ahead of the zone's other waiting requests."""

    def warn(self, work: W, warning: str) -> None:
        """Warn that a waiting request can't be served at present."""

    def fail(self, work: W, error: str) -> None:
        """End a waiting request with an error, because it can't be served."""

    def return_evicted(self, evictions: Evictions) -> None:
        """Free the blocks that were evicted from zones."""

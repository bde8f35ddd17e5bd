"""The arbiter's view of an engine: the running requests, and the fronts of the queues.

vLLM's adapter, the simulator and the random lives are such engines; none of them decides which zone gets what.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tenantzone_runtime.zones.eviction import Evictions
from tenantzone_runtime.zones.zone import Zone


class Work(Protocol):
    """A request, waiting or running."""

    zone: Zone
    """The zone of the request; each has one."""
    peak: int
    """The most blocks that it uses, at its longest: at most the zone's limit when it arrived. A lowered limit lets it
    finish, and applies to later requests."""


W = TypeVar("W", bound=Work)


@dataclass(frozen=True, slots=True)
class Encoding:
    """The room in an engine's encoder that the encoding of an image, sound or video takes, in embeddings."""

    cache: int
    """Embeddings in the encoder cache, until its tokens are computed."""
    compute: int
    """Embeddings to compute in a step; 0 if it is cached already."""


class Engine(Protocol[W]):
    """An engine between two steps, or within one."""

    @property
    def running(self) -> Sequence[W]:
        """The running requests, in the engine's order."""

    def by_seniority(self) -> Sequence[W]:
        """The running requests, most senior first: within a zone the last one is preempted first."""

    @property
    def free_blocks(self) -> int:
        """Blocks that no zone holds."""

    @property
    def headroom(self) -> int:
        """Blocks that must stay free or cached beyond those of an admitted request, while others run."""

    @property
    def is_open(self) -> bool:
        """Whether the engine admits waiting requests at all; a pause lets running requests end undisturbed."""

    @property
    def goes_on(self) -> bool:
        """Whether running requests are computed; a pause may stop that, too."""

    @property
    def seats(self) -> int:
        """Requests that can run at once."""

    @property
    def free_seats(self) -> int:
        """Requests that can run in addition to the running ones; 0 while the engine is not open."""

    @property
    def loading(self) -> Collection[W]:
        """Requests that have a seat and blocks, and can't be preempted before their data from a tier is copied."""

    @property
    def landing(self) -> Collection[W]:
        """The requests among these that wait only for their copies, and not for room."""

    @property
    def adapter_slots(self) -> int:
        """The number of LoRA adapters whose requests can run at once; 0: the engine uses none."""

    def adapter(self, work: W) -> int | None:
        """The LoRA adapter that a request needs, by its number; None: the model alone."""

    @property
    def media_zones(self) -> Collection[Zone]:
        """The zones of all requests with images, sounds or videos, waiting or running."""

    @property
    def encoder_room(self) -> Encoding:
        """Unused embeddings of the encoder cache, and those that a step may make."""

    def next_encoding(self, work: W) -> Encoding | None:
        """The room for the encoding that a request needs to begin or to continue in this step.

        None if it needs none, if another request of its zone uses the same one already, or if it could never fit into
        the encoder.
        """

    def encodings_in_use(self) -> Iterable[tuple[int, Set[W]]]:
        """The encodings in use: the embeddings of each, and its requests."""

    def can_encode(self, work: W) -> bool:
        """Whether the encoder has room for a waiting request's first encoding, beyond what is kept for other zones."""

    @property
    def coming(self) -> Mapping[Zone, int]:
        """Blocks by zone that its requests released, and that are free or cached when steps in flight are over."""

    @property
    def waiting(self) -> Sized:
        """The waiting requests that could be admitted by their blocks and seats, as far as the engine knows."""

    def needs(self) -> Iterable[tuple[W, int]]:
        """The running requests that will need blocks in the coming step, in the engine's order, with the number.

        It is only as precise as is cheap.
        """

    def is_running(self, work: W) -> bool:
        """Whether a request still runs: it may have ended meanwhile."""

    def front(self, zone: Zone) -> W:
        """The next waiting request of a zone that has one."""

    def fronts(self, zone: Zone, count: int) -> Sequence[W]:
        """The next waiting requests of a zone that has one, in their order: at least one and at most ``count``."""

    def blocks_at_most(self, work: W) -> int:
        """The blocks to admit a waiting request if none of its prefix is cached: no less than ``blocks_to_admit``.

        It is cheap to compute, and 0 for a request that can't be admitted yet for a reason other than blocks, seats or
        adapter slots.
        """

    def blocks_to_admit(self, work: W) -> int:
        """The blocks that a waiting request uses when it is admitted: new ones, and cached ones that it hits."""

    def can_begin(self, work: W) -> bool:
        """Whether a waiting request could begin in this step, whatever blocks and tokens there are.

        It can't if its next image or sound has no room in the encoder, or if its prefix is still being computed.
        """

    def can_go_on(self, work: W) -> bool:
        """Whether the prompt of a running request could continue in this step, whatever blocks and tokens there are.

        It can't if its next image or sound has no room in the encoder.
        """

    def blocks_to_continue(self, work: W) -> int:
        """The most blocks that a running request needs in its next step."""

    @property
    def step_tokens(self) -> int | None:
        """The most tokens that a step computes; None if prompts are computed whole, and tokens can't be shared."""

    def chunk_tokens(self, work: W) -> int:
        """The unit in which a step computes tokens of a request's prompt, except for the prompt's end; mostly 1."""

    @property
    def tokens_each(self) -> int:
        """Tokens computed at once for a request that generates: more than one if it speculates."""

    @property
    def depth(self) -> int:
        """The number of steps that may be in flight at once."""

    def in_prompts(self) -> Sequence[W]:
        """The running requests whose prompts are not computed completely, in the engine's order."""

    def is_in_prompt(self, work: W) -> bool:
        """Whether a running request's prompt is not computed completely."""

    def tokens_left(self, work: W) -> int:
        """Tokens of a request's prompt that a step could compute; for a waiting one, if none of them is cached."""

    def tokens_within(self, work: W, blocks: int) -> int:
        """Returns the prompt tokens of a running request that a step could compute with ``blocks`` more blocks."""

    def tokens_computed(self, work: W) -> int:
        """The number of a request's computed tokens."""

    def preempt(self, work: W) -> None:
        """Preempt a running request; it waits before the others of its zone."""

    def warn(self, work: W, warning: str) -> None:
        """Warn that a waiting request can't be served at present."""

    def fail(self, work: W, error: str) -> None:
        """End a waiting request that can't be served, with an error."""

    def return_evicted(self, evictions: Evictions) -> None:
        """Free blocks that zones have lost."""

"""The arbiter's view of an engine: the requests that run, and the fronts of the queues.

vLLM's adapter, the simulator and the random histories are such engines; none of them decides who gets what.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tenantzone_runtime.zones.eviction import Evictions
from tenantzone_runtime.zones.zone import Zone


class Work(Protocol):
    """A request, waiting or running."""

    zone: Zone
    """Whose it is; each has one."""
    peak: int
    """Blocks that it uses at its longest: no more than the zone's limit was when it came. A limit that is lowered under
    it lets it finish, and nothing that comes after it."""


W = TypeVar("W", bound=Work)


@dataclass(frozen=True, slots=True)
class Encoding:
    """What the encoding of an image, sound or video takes of an engine's encoder, in embeddings."""

    cache: int
    """Of the encoder cache, until its tokens are computed."""
    compute: int
    """Of the embeddings that a step may make; 0 if it is cached already."""
    begins_at: int = 0
    """Its first token in its request's prompt."""


class Engine(Protocol[W]):
    """An engine between two steps, or in the midst of one."""

    @property
    def running(self) -> Sequence[W]:
        """Requests that run, in the engine's order."""

    def by_seniority(self) -> Sequence[W]:
        """The running requests, most senior first: within a zone the last one is preempted first."""

    @property
    def free_blocks(self) -> int:
        """Blocks that no zone holds."""

    @property
    def headroom(self) -> int:
        """Blocks that are to stay free or cached beyond what a request is admitted with, while others run."""

    @property
    def is_open(self) -> bool:
        """Whether the engine takes on waiting requests at all; a pause lets what runs end undisturbed."""

    @property
    def goes_on(self) -> bool:
        """Whether the requests that run are computed; a pause may stop that, too."""

    @property
    def seats(self) -> int:
        """Requests that can run at once."""

    @property
    def free_seats(self) -> int:
        """Requests that can run in addition to the running ones; 0 while the engine is not open."""

    @property
    def loading(self) -> Collection[W]:
        """Requests that have a seat and blocks, and can't yield either before what they found in a tier is copied."""

    @property
    def landing(self) -> Collection[W]:
        """The requests among these that wait only for their copies, and not for room."""

    @property
    def adapter_slots(self) -> int:
        """The LoRA adapters for which requests can run at once; 0: the engine takes none."""

    def adapter(self, work: W) -> int | None:
        """The LoRA adapter that a request asks for, by its number; None: the model alone."""

    @property
    def media_zones(self) -> Collection[Zone]:
        """The zones of all requests with images, sounds or videos, waiting or running."""

    @property
    def encoder_room(self) -> Encoding:
        """Embeddings that no request uses of the encoder cache, and those that a step may make."""

    def next_encoding(self, work: W) -> Encoding | None:
        """What the encoding takes that a request needs to begin or to go on in this step.

        None if it needs none, if another request of its zone uses the same one already, or if the encoder could never
        take it.
        """

    def encodings_in_use(self) -> Iterable[tuple[int, Set[W]]]:
        """The encodings that requests use: the embeddings of each, and these requests."""

    def can_encode(self, work: W) -> bool:
        """Whether the encoder has room for what a waiting request needs first, and for what is kept for other zones."""

    @property
    def coming(self) -> Mapping[Zone, int]:
        """Blocks by zone that its requests let go, and that are free or cached when steps in flight are over."""

    @property
    def waiting(self) -> Sized:
        """The requests that wait and could be admitted by their blocks and seats, as far as the engine knows."""

    def needs(self) -> Iterable[tuple[W, int]]:
        """The running requests that will ask for blocks in the coming step, in the engine's order, with how many.

        It is only as precise as is cheap.
        """

    def is_running(self, work: W) -> bool:
        """Whether a request still runs: it may have ended meanwhile."""

    def front(self, zone: Zone) -> W:
        """The next waiting request of a zone that has one."""

    def fronts(self, zone: Zone, count: int) -> Sequence[W]:
        """The next waiting requests of a zone that has one, in their order, ``count`` at the most and one at least."""

    def blocks_at_most(self, work: W) -> int:
        """The blocks to admit a waiting request if none of its prefix is cached: no less than ``blocks_to_admit``.

        It is cheap to compute, and 0 for a request that can't be admitted yet for another reason than blocks, seats or
        adapter slots.
        """

    def blocks_to_admit(self, work: W) -> int:
        """Blocks that a waiting request puts to use when it is admitted: new ones, and cached ones that it hits."""

    def can_begin(self, work: W) -> bool:
        """Whether a waiting request could begin in this step, whatever blocks and tokens there are.

        It can't if its next image or sound has no room in the encoder, or what it begins with is still being computed.
        """

    def can_go_on(self, work: W) -> bool:
        """Whether the prompt of a running request could go on in this step, whatever blocks and tokens there are.

        It can't if the image or sound that comes now has no room in the encoder.
        """

    def blocks_to_continue(self, work: W) -> int:
        """Blocks that a running request asks for in its next step, at the most."""

    @property
    def step_tokens(self) -> int | None:
        """Tokens that a step computes at the most; None where prompts are computed whole, and can't be shared out."""

    def chunk_tokens(self, work: W) -> int:
        """Tokens of a request's prompt that a step computes now, or none, but for the prompt's end; mostly 1."""

    @property
    def tokens_each(self) -> int:
        """Tokens that are computed at once for a request that generates: more than one if it speculates."""

    @property
    def depth(self) -> int:
        """Steps that may be in flight at once."""

    def in_prompts(self) -> Sequence[W]:
        """The running requests of whose prompts something is left to compute, in the engine's order."""

    def is_in_prompt(self, work: W) -> bool:
        """Whether something of a running request's prompt is left to compute."""

    def tokens_left(self, work: W) -> int:
        """Tokens of a request's prompt that a step could compute; one that waits finds none of them cached."""

    def tokens_within(self, work: W, blocks: int) -> int:
        """Returns the prompt tokens of a running request that a step could compute with ``blocks`` more blocks."""

    def tokens_computed(self, work: W) -> int:
        """Tokens of a request that are computed."""

    def preempt(self, work: W) -> None:
        """Send a running request back to wait, before the others of its zone."""

    def warn(self, work: W, warning: str) -> None:
        """Say that a waiting request can't be served, as things are."""

    def fail(self, work: W, error: str) -> None:
        """End a waiting request that can't be served, with an error."""

    def return_evicted(self, evictions: Evictions) -> None:
        """Make blocks that zones lost free."""

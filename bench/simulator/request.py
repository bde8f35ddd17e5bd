"""One request to the simulated engine."""

from dataclasses import dataclass, field

from tenantzone_runtime.zones.zone import Zone

BLOCK_TOKENS = 512
"""Tokens in a block; the trace's."""
_MAX_BLOCKS = 1 << 20
"""No request has more blocks; keeps the ids of generated blocks apart."""


@dataclass(slots=True, eq=False)
class Request:
    """A client's request, and the engine's progress with it."""

    number: int
    """The number in the order of arrival."""
    tenant: str
    arrival: float
    """Simulated seconds."""
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...]
    """Ids of the blocks that the prompt fills; equal ids mean an equal prompt up to there."""

    zone: Zone = field(init=False)
    """Since an engine took it on."""
    peak: int = 0
    """Blocks that it uses at its longest; known since an engine took it on."""
    blocks: list[int] = field(default_factory=list)
    hashed: int = 0
    """How many of the blocks are in the prefix index, from the first on."""
    computed: int = 0
    """Tokens whose keys and values are in the blocks."""
    generated: int = 0
    hit_tokens: int = 0
    """Found in the cache when it was admitted first."""
    admitted: float | None = None
    """When it was first admitted."""
    preemptions: int = 0

    @property
    def tokens(self) -> int:
        """The tokens of the prompt and of what was generated so far."""
        return self.prompt_tokens + self.generated

    @property
    def blocks_to_admit(self) -> int:
        """The blocks for its tokens and the next one: a request preempted for lack of a block returns with it."""
        return self.tokens // BLOCK_TOKENS + 1

    def blocks_for(self, tokens: int) -> int:
        """Returns the number of blocks that ``tokens`` tokens fill or begin."""
        return -(-tokens // BLOCK_TOKENS)

    def block_hash(self, index: int) -> int:
        """Returns the hash of one of its blocks; those of generated blocks are unique."""
        if index < len(self.prefix):
            return self.prefix[index]
        return -(self.number * _MAX_BLOCKS + index) - 1

    def forget_progress(self) -> None:
        """The engine that worked on it is gone."""
        self.blocks = []
        self.hashed = self.computed = self.generated = self.hit_tokens = 0
        self.admitted = None

"""A request to the simulated engine."""

from dataclasses import dataclass, field

from tenantzone_runtime.zones.model.zone import Zone

BLOCK_TOKENS = 512
"""Number of tokens in a block, as in the trace."""
_MAX_BLOCKS = 1 << 20
"""Upper bound of a request's blocks, which keeps the ids of generated blocks unique."""


@dataclass(slots=True, eq=False)
class Request:
    """A client's request, and the engine's progress with it."""

    number: int
    """Number of the request in the order of arrival."""
    tenant: str
    arrival: float
    """Time of arrival, in simulated seconds."""
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...]
    """Ids of the blocks that the prompt fills; equal ids mean equal prompts up to the end of the block."""

    zone: Zone = field(init=False)
    """Zone of the request; set when an engine queues the request."""
    peak: int = 0
    """Number of blocks that the request needs at its end; set when an engine queues the request."""
    blocks: list[int] = field(default_factory=list)
    hashed: int = 0
    """Number of leading blocks that are in the prefix index."""
    computed: int = 0
    """Number of tokens whose keys and values are in the blocks."""
    generated: int = 0
    hit_tokens: int = 0
    """Number of cached tokens at the first admission."""
    admitted: float | None = None
    """Time of the first admission, in simulated seconds."""
    preemptions: int = 0

    @property
    def tokens(self) -> int:
        """Number of tokens of the prompt and of the output so far."""
        return self.prompt_tokens + self.generated

    @property
    def blocks_to_admit(self) -> int:
        """Number of blocks for all tokens and the next one, so that a request preempted for a block returns with it."""
        return self.tokens // BLOCK_TOKENS + 1

    def blocks_for(self, tokens: int) -> int:
        """Returns the number of blocks that ``tokens`` tokens fill or begin."""
        return -(-tokens // BLOCK_TOKENS)

    def block_hash(self, index: int) -> int:
        """Returns the hash of one of the request's blocks; hashes of generated blocks are unique."""
        if index < len(self.prefix):
            return self.prefix[index]
        return -(self.number * _MAX_BLOCKS + index) - 1

    def forget_progress(self) -> None:
        """Reset the request's progress, because its engine has restarted."""
        self.blocks = []
        self.hashed = self.computed = self.generated = self.hit_tokens = 0
        self.admitted = None

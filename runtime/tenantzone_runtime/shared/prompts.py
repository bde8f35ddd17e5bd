"""Which prompts a zone has used of late, by the hashes of their blocks; pure.

A block's hash says nothing of the block before it, and without all that come before it none can be stored or loaded. So
it is remembered here which one follows which, for as many blocks as the zone has cached.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

_NONE = b""


class RecentPrompts:
    """The prompts of each tenant's zone."""

    def __init__(self) -> None:
        self._before: dict[str, dict[bytes, bytes]] = {}
        """By tenant: each block's hash, and that of the block before it.

        What was used last is at the end, and what comes before a block was used no earlier than the block itself.
        """

    def note(self, tenant: str, hashes: Sequence[bytes]) -> None:
        """Note that a prompt was used, from its beginning on."""
        if not hashes:
            return
        before = self._before.setdefault(tenant, {})
        # In reverse: of a prompt, its end is forgotten first.
        for index in range(len(hashes) - 1, -1, -1):
            before.pop(hashes[index], None)
            before[hashes[index]] = hashes[index - 1] if index else _NONE

    def trim(self, tenant: str, blocks: int) -> None:
        """Remember no more than so many blocks of a zone: those that were used last."""
        before = self._before.get(tenant)
        if before is None:
            return
        for gone in list(islice(before, max(0, len(before) - blocks))):
            del before[gone]
        if not before:
            del self._before[tenant]

    def forget(self, tenant: str) -> None:
        """Remember nothing of a zone."""
        self._before.pop(tenant, None)

    @property
    def tenants(self) -> Sequence[str]:
        """Of whom anything is remembered."""
        return list(self._before)

    def links(self, tenant: str) -> dict[bytes, bytes]:
        """A copy of what is remembered of a zone, which :func:`whole_prompts` makes prompts of."""
        return self._before.get(tenant, {}).copy()

    def of(self, tenant: str) -> list[list[bytes]]:
        """The prompts of a zone, each from its beginning on, the one first that was used last.

        One that another goes on from is a part of that.
        """
        return whole_prompts(self.links(tenant))


def whole_prompts(before: Mapping[bytes, bytes]) -> list[list[bytes]]:
    """The prompts that are linked so."""
    followed = set(before.values())
    return [_whole(before, last) for last in reversed(list(before)) if last not in followed]


def within(prompts: Iterable[Sequence[bytes]], blocks: int) -> Iterator[Sequence[bytes]]:
    """The first of these prompts, as far as they name no more than so many blocks together."""
    for prompt in prompts:
        if blocks <= 0:
            return
        yield prompt[:blocks]
        blocks -= len(prompt)


def _whole(before: Mapping[bytes, bytes], last: bytes) -> list[bytes]:
    hashes, block = [], last
    while block != _NONE:
        hashes.append(block)
        block = before[block]
    return hashes[::-1]
